package main

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"rankpool/mpicache"
	"rankpool/scheduler"
)

// memoryPlan is how a rank divides its memory.
type memoryPlan struct {
	slabBytes, cacheBytes, windowBytes int64
}

const (
	// Bounds of a window that nobody set: a batch of 64 samples of 250 KB, if that is no more than half the data, and
	// ten seconds of 100 MB/s.
	usualWindowBytes = 16 << 20
	minWindowBytes   = 1 << 20
	maxWindowBytes   = 1 << 30
	// The slab has a sixteenth more than cache and window hold, for what lies between samples of different sizes.
	slackShare = 16
)

// divide gives each data set its part of the ranks' memory, in PartitionBytes and WindowBytes. A share of the data counts the bytes
// that a rank owns, so that 100 % hold all of them. A size is the whole slab.
func (o *cacheOptions) divide(data []mpicache.DataSet, rank, ranks int) (memoryPlan, error) {
	memory, err := parseMemory(o.memory)
	if err != nil {
		return memoryPlan{}, err
	}
	owned, largest := make([][]int64, len(data)), make([]int64, len(data)) // owned by data set and rank
	total := make([]int64, ranks)
	for i, d := range data {
		owned[i] = make([]int64, ranks)
		for id := range scheduler.SampleID(d.Samples) {
			size, owner := mpicache.Footprint(d.Size(id)), scheduler.Owner(id, ranks)
			largest[i] = max(largest[i], size)
			owned[i][owner] += size
			total[owner] += size
		}
	}
	var plan memoryPlan
	for i := range data {
		d := &data[i]
		d.PartitionBytes = make([]int64, ranks)
		for r := range ranks {
			window, err := o.windowBytes(owned[i][r], largest[i])
			if err != nil {
				return plan, err
			}
			if memory.isShare {
				d.PartitionBytes[r] = int64(memory.share * float64(owned[i][r]))
			} else if memory.bytes > 0 {
				part := int64(float64(memory.bytes) * float64(owned[i][r]) / float64(max(total[r], 1)))
				part -= part / slackShare
				window = min(window, part/2)
				d.PartitionBytes[r] = part - window
			}
			if r == rank {
				d.WindowBytes = window
			}
		}
		plan.cacheBytes += d.PartitionBytes[rank]
		plan.windowBytes += d.WindowBytes
	}
	plan.slabBytes = plan.cacheBytes + plan.windowBytes
	plan.slabBytes += plan.slabBytes / slackShare
	if !memory.isShare && memory.bytes > 0 {
		plan.slabBytes = memory.bytes
	}
	return plan, nil
}

// windowBytes is the window that was asked for, else an eighth of what the rank owns, within bounds. A batch that is
// due comes in even when it is larger.
func (o *cacheOptions) windowBytes(owned, largest int64) (int64, error) {
	if o.window == autoWindow {
		return max(min(owned/8, maxWindowBytes), min(owned/2, usualWindowBytes), minWindowBytes, 4*largest), nil
	}
	return parseSize(o.window)
}

// check compares the slabs of all ranks here with what the machine gives.
func (m memoryPlan) check(ranksHere int) error {
	need := m.slabBytes * int64(ranksHere)
	have, from := memoryAvailable()
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
	return &memoryError{fmt.Sprintf("%s would need %s of memory, and there are %s (%s): ask for less with --memory", ranks, size(need), size(have), from)}
}

// A memoryError says that the ranks of a node ask for too much; it is the same for all of them.
type memoryError struct{ sentence string }

func (e *memoryError) Error() string { return e.sentence }

// sharedMemoryFree is the free space of /dev/shm. A memfd is not bound by it, but an administrator who limits
// /dev/shm means shared memory, and DataLoader workers need some too.
func sharedMemoryFree() (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}

func size(bytes int64) string { return humanize.IBytes(uint64(bytes)) }
