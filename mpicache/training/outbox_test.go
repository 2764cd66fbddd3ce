package training

import (
	"testing"

	"rankpool/mpicache/fields"
	"rankpool/scheduler/protocol"
)

// TestRecordsOfEmbeddings checks that other ranks read records of embeddings as they were written.
func TestRecordsOfEmbeddings(t *testing.T) {
	o := &outbox{}
	o.add(recordReport, 2, 3, 4, []float32{1, 2}, []float32{5, 6, 7, 8})
	c := fields.Reader{Rest: o.bytes}
	e := readRecord(&c, 1).(protocol.Trained)
	if !c.Whole() || e.Rank != 1 || e.Trainer != 2 || e.Epoch != 3 || e.Batch != 4 ||
		len(e.Losses) != 2 || e.Losses[1] != 2 || len(e.Embeddings) != 4 || e.Embeddings[3] != 8 {
		t.Errorf("%+v is read, %v", e, c.Rest)
	}
}
