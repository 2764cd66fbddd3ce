package mpicache

import (
	"math"

	"rankpool/mpicache/door"
)

// What a client may ask of a rank at most, besides what package door bounds: far more than two
// hundred trainers with all their workers need.
const (
	maxConns      = 8192 // of a rank
	maxConnsOfOne = 2048 // of a process

	maxGets    = 1024 // of a connection, without a reply
	maxWaiting = 64   // of its other requests without a reply, each kind for itself
	maxBesides = 64   // streams beside a training, of a connection
	// maxEmbedding is the numbers in an embedding, and maxEmbedded the bytes of those of a trainer's
	// part of a batch: other ranks get them in one message.
	maxEmbedding = 4096
	maxEmbedded  = 32 << 20
	maxName      = 256 // bytes of a metric's name
	maxMetrics   = 256 // of an epoch
	maxEpoch     = math.MaxInt32 - 1

	// A restarted rank hears about the epochs that its trainers still know: losses of three, counts
	// and metrics of nine. Messages about more epochs are invalid.
	maxHeldEpochs = 3
	maxToldEpochs = 16

	// maxTalliedMicroseconds is a year: no trainer waits for longer in an epoch, or trains it.
	maxTalliedMicroseconds = 366 * 24 * 3600 * 1e6
)

// fewLosses is how many losses a trainer's part of any batch may have.
const fewLosses = 1 << 16

// reportBytes is the size of the largest REPORT of a training. A trainer's part of a batch has at
// most the batch's samples, and, where these are more than fewLosses, those of an epoch: every
// sample once, and up to one a trainer more where all have as many (sampler torch). Below that,
// systems may draw more samples than there are: they repeat some to fill a batch.
func reportBytes(spec *Spec, samples int) int {
	epoch := max(samples+spec.World, fewLosses)
	return door.ReportBytes(min(spec.BatchSize, epoch), spec.Embeddings)
}
