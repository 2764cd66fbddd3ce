package mpicache

import "math"

// What a client may ask of a rank at the most: far more than two hundred trainers with all their
// workers need.
const (
	maxWorld = 1<<16 - 1 // trainers that a plan can name (uint16)

	maxConns      = 8192 // of a rank
	maxConnsOfOne = 2048 // of a process

	maxLeases  = 1024    // that a connection holds
	maxGets    = 1024    // of a connection, without a reply
	maxWaiting = 64      // of its other requests without a reply, each kind for itself
	maxBesides = 64      // streams beside a training, of a connection
	maxWarmIDs = 1 << 16 // in a request
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

// payloadLimit returns the size of the largest payload of a kind that this client may need to send;
// false if there is no such kind.
func (c *conn) payloadLimit(kind Kind) (bytes int, ok bool) {
	switch kind {
	case KindHello: // of another version too, which is refused by its number
		return 1 << 10, true
	case KindOpen:
		return 64 << 10, true
	case KindPlan, KindSave:
		return 12, true
	case KindGet:
		return 16 + 4*maxLeases + tallyBytes, true
	case KindRelease:
		return 4 + 4*maxLeases + tallyBytes, true
	case KindReport:
		return max(c.reportBytes, reportHeadBytes), true
	case KindMetric:
		return 4 << 10, true
	case KindWarm:
		return 8 + 4*maxWarmIDs, true
	case KindStatus, KindShutdown:
		return 0, true
	}
	return 0, false
}

const reportHeadBytes = 16

// reportBytes is the size of the largest REPORT of a training. A trainer's part of a batch has at
// most the batch's samples, and those of an epoch: every sample once, and up to one a trainer more
// where all have as many (sampler torch).
func reportBytes(spec *Spec, samples int) int {
	n := min(spec.BatchSize, samples+spec.World)
	bytes := reportHeadBytes + 4*n
	if spec.Embeddings > 0 {
		bytes += 4 + 4*n*spec.Embeddings
	}
	return bytes
}
