package mpicache

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/scheduler/protocol"
)

// openEmbedded opens the data set for training that reports embeddings of d numbers.
func (tr *trainer) openEmbedded(d int) (door.Opened, error) {
	text, err := json.Marshal(protocol.Spec{
		Data: "train", Sampler: "spidercache", Seed: 1, BatchSize: 4, Trainer: tr.rank,
		World: tr.world, Training: &tr.training, Epochs: 3, Embeddings: d,
	})
	if err != nil {
		return door.Opened{}, err
	}
	var reply door.Opened
	text, err = tr.Call(door.KindOpen, text)
	if err == nil {
		err = json.Unmarshal(text, &reply)
	}
	return reply, err
}

// embedded returns the payload of a REPORT of n losses and embeddings of d numbers.
func embedded(epoch, batch, n, d uint32) []byte {
	b := u32s(0, epoch, batch, n)
	for range n {
		b = le.AppendUint32(b, math.Float32bits(1))
	}
	if d > 0 {
		b = le.AppendUint32(b, d)
	}
	for i := range n * d {
		b = le.AppendUint32(b, math.Float32bits(float32(i%5)))
	}
	return b
}

func spiderRanks(cfg *Config) {
	cfg.System, cfg.Sampler, cfg.Scorer = "spidercache", "spidercache", "loss"
}

// TestEmbeddingsAtTheDoor checks which embeddings trainers may announce to a system that scores
// samples by them.
func TestEmbeddingsAtTheDoor(t *testing.T) {
	for _, c := range []struct {
		d    int
		want string // what OPEN is refused with
	}{
		{3, ""},
		{0, "spidercache scores samples by their embeddings: give their length, " +
			"BatchSampler(…, embeddings=D)"},
		{-1, "an embedding must have 1 to 4096 numbers, not -1"},
		{4097, "an embedding must have 1 to 4096 numbers, not 4097"},
	} {
		cl := newCluster(t, 1, 24, 1<<16, spiderRanks)
		tr := cl.mustTrainer(t, 0, 1)
		reply, err := tr.openEmbedded(c.d)
		if c.want == "" && (err != nil || reply.Embeddings != c.d ||
			!strings.Contains(reply.Choice, "3 epochs")) {
			t.Errorf("OPEN with %d numbers: %+v, %v", c.d, reply, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("OPEN with %d numbers: %v, want %q", c.d, err, c.want)
		}
		_ = tr.close()
		cl.close()
	}
}

// TestReportsOfOtherEmbeddings checks that reports with other embeddings than announced break the
// protocol, and that those that fit are accepted.
func TestReportsOfOtherEmbeddings(t *testing.T) {
	for _, c := range []struct {
		payload []byte
		want    string
	}{
		{embedded(0, 0, 4, 3), ""},
		{embedded(0, 0, 4, 0), "embeddings of 0 numbers, where they have 3"},
		{embedded(0, 0, 4, 2), "embeddings of 2 numbers, where they have 3"},
	} {
		cl := newCluster(t, 1, 24, 1<<16, spiderRanks)
		tr := cl.mustTrainer(t, 0, 1)
		if _, err := tr.openEmbedded(3); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.plan(0); err != nil {
			t.Fatal(err)
		}
		err := tr.Send(door.KindReport, c.payload)
		if err == nil {
			_, err = tr.Call(door.KindStatus, nil)
		}
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("a report of %d bytes: %v, want %q", len(c.payload), err, c.want)
		}
		_ = tr.close()
		cl.close()
	}
}

// TestReportsThatAreCutOff checks that the embeddings of a report are whole.
func TestReportsThatAreCutOff(t *testing.T) {
	whole := embedded(0, 0, 4, 3)
	for _, n := range []int{33, 79, 83} {
		if _, err := door.ParseReport(whole[:n]); !errors.Is(err, door.ErrFrame) {
			t.Errorf("%d bytes of %d are a report: %v", n, len(whole), err)
		}
	}
}
