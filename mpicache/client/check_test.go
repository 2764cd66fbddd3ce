package client

import (
	"math"
	"strings"
	"testing"

	"rankpool/scheduler/protocol"
)

// TestLargeEmbeddings checks that embeddings go with the batch size.
func TestLargeEmbeddings(t *testing.T) {
	spec := &protocol.Spec{BatchSize: maxEmbedded/4/4096 + 1, Embeddings: 4096}
	if err := checkEmbeddings(spec, "x"); err == nil ||
		!strings.Contains(err.Error(), "go with batches of at most 2048 samples, not 2049") {
		t.Errorf("a large batch: %v", err)
	}
}

// TestReportsAreAsLargeAsAnnounced checks that a report is limited to the losses and embeddings
// that a batch, and an epoch, can have.
func TestReportsAreAsLargeAsAnnounced(t *testing.T) {
	for spec, want := range map[protocol.Spec]int{
		{BatchSize: 4, World: 1}:                       16 + 4*4,
		{BatchSize: 4, World: 1, Embeddings: 3}:        16 + 4*4 + 4 + 4*4*3,
		{BatchSize: math.MaxInt32, World: 1}:           16 + 4*100_001,
		{BatchSize: 200_000, World: 8, Embeddings: 2}:  16 + 4*100_008 + 4 + 4*100_008*2,
		{BatchSize: 200_000, World: 8}:                 16 + 4*100_008,
		{BatchSize: 3, World: math.MaxUint16}:          16 + 4*3,
		{BatchSize: 60, World: 1, Sampler: "weighted"}: 16 + 4*60,
	} {
		if n := reportBytes(&spec, 100_000); n != want {
			t.Errorf("a report of %+v may have %d bytes, want %d", spec, n, want)
		}
	}
	if n := reportBytes(&protocol.Spec{BatchSize: 16, World: 1}, 9); n != 16+4*16 {
		t.Errorf("a batch that is filled may have %d bytes of losses, want 64", n-16)
	}
}
