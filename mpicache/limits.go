package mpicache

import (
	"math"

	"rankpool/mpicache/door"
)

// Limits on what a client may ask of a rank, besides those of package door: far more than two
// hundred trainers with all their workers need.
const (
	maxConns      = 8192 // connections to a rank
	maxConnsOfOne = 2048 // connections of a process to a rank

	maxGets    = 1024 // GETs without a reply, of a connection
	maxWaiting = 64   // other requests without a reply, of each kind
	maxBesides = 64   // streams beside a training, of a connection
	// maxEmbedding bounds the length of an embedding, and maxEmbedded the bytes of the embeddings of a
	// trainer's part of a batch, which other ranks get in one message.
	maxEmbedding = 4096
	maxEmbedded  = 32 << 20
	maxName      = 256 // bytes of a metric's name
	maxMetrics   = 256 // of an epoch
	maxEpoch     = math.MaxInt32 - 1

	// A restarted rank gets what its trainers still know of earlier epochs: losses of three, counts
	// and metrics of nine. Messages about more epochs are invalid.
	maxHeldEpochs = 3
	maxToldEpochs = 16

	// maxTalliedMicroseconds is a year: no trainer waits or trains for longer in an epoch.
	maxTalliedMicroseconds = 366 * 24 * 3600 * 1e6
)

// fewLosses is how many losses a trainer's part of a batch may have in any case.
const fewLosses = 1 << 16

// reportBytes returns the size of the largest REPORT of a training. A trainer's part of a batch has
// at most BatchSize samples. If that is more than fewLosses, it also has at most the samples of an
// epoch: each sample once, and up to one more per trainer if all get the same number (sampler
// torch). Below that, systems may draw more samples than there are: they repeat some to fill a
// batch.
func reportBytes(spec *Spec, samples int) int {
	epoch := max(samples+spec.World, fewLosses)
	return door.ReportBytes(min(spec.BatchSize, epoch), spec.Embeddings)
}
