package door

// What a frame may have at most: far more than two hundred trainers with all their workers
// need.
const (
	maxWorld = 1<<16 - 1 // trainers that a plan can name (uint16)
	// MaxLeases is how many leases a connection holds.
	MaxLeases = 1024
)

// Limits are how large the frames of a client may be.
type Limits struct {
	ReportBytes int // of the largest REPORT of the data sets that it has opened
}

const reportHeadBytes = 16

// ReportBytes is the size of a REPORT, with embeddings of so many dimensions; 0: without.
func ReportBytes(losses, dimensions int) int {
	bytes := reportHeadBytes + 4*losses
	if dimensions > 0 {
		bytes += 4 + 4*losses*dimensions
	}
	return bytes
}

// Payload returns the size of the largest payload of a kind that a client may need to send; false
// if the kind is unknown.
func (l Limits) Payload(kind Kind) (bytes int, ok bool) {
	switch kind {
	case KindHello: // of another version too, which is refused by its number
		return 1 << 10, true
	case KindOpen:
		return 64 << 10, true
	case KindPlan, KindSave:
		return 12, true
	case KindGet:
		return 16 + 4*MaxLeases + tallyBytes, true
	case KindRelease:
		return 4 + 4*MaxLeases + tallyBytes, true
	case KindReport:
		return max(l.ReportBytes, reportHeadBytes), true
	case KindMetric:
		return 4 << 10, true
	case KindStatus, KindShutdown:
		return 0, true
	}
	return 0, false
}
