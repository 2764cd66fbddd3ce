// Package memory divides a node's memory: sizes as users write them, the choice of --memory auto,
// and each data set's part.
package memory

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"rankpool/mpicache"
	"rankpool/mpicache/slab"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/systems"
	"rankpool/staging/sizes"
)

// AutoWindow lets the rank choose the size of its staging window.
const AutoWindow = "auto"

// A Request holds the values of --memory and --tune window.
type Request struct{ Memory, Window string }

// Plan is how a rank divides its memory.
type Plan struct {
	SlabBytes, CacheBytes, WindowBytes int64
}

const (
	// UsualWindowBytes is the minimum for a window that was not set, a batch of 64 samples of 250
	// KB, unless that exceeds half the data. The maximum is ten seconds of 100 MB/s.
	UsualWindowBytes = 16 << 20
	minWindowBytes   = 1 << 20
	maxWindowBytes   = 1 << 30
	// The slab is a sixteenth larger than cache and window, to allow for the gaps between samples
	// of different sizes.
	slackShare = 16
)

// A demand is the memory that a data set needs on each rank: for the samples that the rank owns,
// and for its window.
type demand struct{ owned, window []int64 }

// Divide sets each data set's part of the ranks' memory, in PartitionBytes and WindowBytes. slabs
// holds the sizes of the ranks' slabs. Where one is 0, or slabs is nil, --memory decides: a size,
// or a share of the data, which counts the bytes that a rank owns, so that 100 % hold all of them.
// A slab whose size was chosen automatically is at most that large.
func (r Request) Divide(data []mpicache.DataSet, slabs []int64, rank, ranks int) (Plan, error) {
	var memory Amount
	if r.Memory != Auto {
		var err error
		if memory, err = Parse(r.Memory); err != nil {
			return Plan{}, err
		}
	}
	demands, err := r.demands(data, ranks)
	if err != nil {
		return Plan{}, err
	}
	var plan Plan
	for at := range ranks {
		of, slab := memory.Share, memory.Bytes
		if slabs != nil && slabs[at] > 0 {
			of, slab = 0, slabs[at]
		}
		if whole := withSlack(wants(demands, at)); r.Memory == Auto && slab >= whole {
			of, slab = 1, 0
		}
		here := divideRank(data, demands, at, of, slab)
		if at == rank {
			plan = here
			for i := range data {
				data[i].WindowBytes = demands[i].window[at]
			}
		}
	}
	for i := range data {
		data[i].BookBytes = bookBytes(&data[i], memory)
	}
	return plan, nil
}

// bookBytes is the memory of all ranks as a published system counts it: a share of the data, or the
// ranks' memory in bytes of samples.
func bookBytes(d *mpicache.DataSet, memory Amount) int64 {
	if memory.IsShare {
		return systems.BookBytes(memory.Share, d.Held(), d.Size)
	}
	bytes := int64(0)
	for _, part := range d.PartitionBytes {
		bytes += part
	}
	return min(bytes, systems.BookBytes(1, d.Held(), d.Size))
}

// demands returns the memory that the data sets need on each rank.
func (r Request) demands(data []mpicache.DataSet, ranks int) ([]demand, error) {
	demands := make([]demand, len(data))
	for i, d := range data {
		owned, window, largest := make([]int64, ranks), make([]int64, ranks), int64(0)
		for id := range draw.SampleID(d.Held()) {
			size := slab.Footprint(d.Size(id))
			largest = max(largest, size)
			owned[d.Owner(id, ranks)] += size
		}
		for at := range ranks {
			var err error
			if window[at], err = r.windowBytes(owned[at], largest); err != nil {
				return nil, err
			}
		}
		demands[i] = demand{owned, window}
	}
	return demands, nil
}

// wants returns the memory that a rank needs to keep all samples that it owns.
func wants(demands []demand, rank int) int64 {
	bytes := int64(0)
	for _, d := range demands {
		bytes += d.owned[rank] + d.window[rank]
	}
	return bytes
}

// withSlack returns the size of a slab for a cache and windows of that size.
func withSlack(bytes int64) int64 { return bytes + bytes/slackShare }

// WithoutSlack returns how many bytes of samples a slab holds.
func WithoutSlack(bytes int64) int64 { return bytes - bytes/slackShare }

// divideRank sets the PartitionBytes of a rank: a share of what the rank owns or, if slab is not 0,
// a part of the slab. If the slab is small, it shrinks the rank's windows.
func divideRank(
	data []mpicache.DataSet, demands []demand, rank int, share float64, slab int64,
) Plan {
	var plan Plan
	total := int64(0)
	for _, d := range demands {
		total += d.owned[rank]
	}
	for i, d := range demands {
		if data[i].PartitionBytes == nil {
			data[i].PartitionBytes = make([]int64, len(d.owned))
		}
		cache := int64(share * float64(d.owned[rank]))
		if slab > 0 {
			part := int64(float64(slab) * float64(d.owned[rank]) / float64(max(total, 1)))
			part = WithoutSlack(part)
			d.window[rank] = min(d.window[rank], part/2)
			cache = part - d.window[rank]
		}
		data[i].PartitionBytes[rank] = cache
		plan.CacheBytes += cache
		plan.WindowBytes += d.window[rank]
	}
	plan.SlabBytes = withSlack(plan.CacheBytes + plan.WindowBytes)
	if slab > 0 {
		plan.SlabBytes = slab
	}
	return plan
}

// windowBytes returns the requested size of the window, else an eighth of what the rank owns,
// within bounds. A batch that is due is staged even if it is larger.
func (r Request) windowBytes(owned, largest int64) (int64, error) {
	if r.Window == AutoWindow {
		return max(min(owned/8, maxWindowBytes), min(owned/2, UsualWindowBytes), minWindowBytes,
			4*largest), nil
	}
	return sizes.Parse(r.Window)
}

// Check compares the slabs of all ranks of this machine with its free memory.
func (m Plan) Check(ranksHere int) error {
	need := m.SlabBytes * int64(ranksHere)
	memory := Available()
	have, from := memory.FreeBytes, memory.Limit
	if shm, ok := sharedMemoryFree(); ok && shm < have {
		have, from = shm, "what /dev/shm holds"
	}
	if need <= have {
		return nil
	}
	ranks := "this rank"
	if ranksHere > 1 {
		ranks = fmt.Sprintf("the %d ranks on this node", ranksHere)
	}
	return &TooSmallError{fmt.Sprintf(
		"%s would need %s of memory, and there are %s (%s): ask for less with --memory", ranks,
		Text(need), Text(have), from)}
}

// A TooSmallError means that the ranks of a node ask for too much; it is the same for all of them.
type TooSmallError struct{ Sentence string }

func (e *TooSmallError) Error() string { return e.Sentence }

// sharedMemoryFree returns the free space of /dev/shm. It does not bound a memfd, but an
// administrator who limits /dev/shm means shared memory in general, and DataLoader workers need
// some too.
func sharedMemoryFree() (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}

// Text formats a number of bytes for people.
func Text(bytes int64) string { return humanize.IBytes(uint64(bytes)) }
