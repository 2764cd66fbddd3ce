package door

// Limits on a frame: far more than two hundred trainers with all their workers need.
const (
	maxWorld = 1<<16 - 1 // trainers that a plan can name (uint16)
	// MaxLeases is how many leases a connection may hold.
	MaxLeases = 1024
)

// Limits bound the size of a client's frames.
type Limits struct {
	ReportBytes int // of the largest REPORT of the data sets that it has opened
}

const reportHeadBytes = 16

const (
	listHeadBytes = 20
	// ListNumbers is how many numbers a LIST may have.
	ListNumbers = 1 << 18
)

// ReportBytes returns the size of a REPORT with this many losses, and with embeddings of this many
// dimensions; 0: without embeddings.
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
	case KindHello: // also of another version, which is refused by its number
		return 1 << 10, true
	case KindOpen:
		return 64 << 10, true
	case KindPlan, KindSave:
		return 12, true
	case KindGet:
		return 16 + 4*MaxLeases + maxTallyBytes, true
	case KindRelease:
		return 4 + 4*MaxLeases + maxTallyBytes, true
	case KindList:
		return listHeadBytes + 4*ListNumbers, true
	case KindReport:
		return max(l.ReportBytes, reportHeadBytes), true
	case KindMetric:
		return 4 << 10, true
	case KindStatus, KindShutdown:
		return 0, true
	}
	return 0, false
}
