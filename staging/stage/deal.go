package stage

import "math/bits"

// Mode determines which ranks get a file.
type Mode string

// The modes: each rank its share, balanced by bytes, or each rank everything.
const (
	Partition Mode = "partition"
	Replicate Mode = "replicate"
)

// A set is a bit set of items.
type set []uint64

func newSet(n int) set       { return make(set, (n+63)/64) }
func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

func (s set) count() (n int64) {
	for _, word := range s {
		n += int64(bits.OnesCount64(word))
	}
	return n
}

// owned returns the files and links that rank gets; ranks is the number of ranks. Every rank gets
// all folders.
func owned(plan *Plan, mode Mode, rank, ranks int) set {
	mine := newSet(len(plan.Items))
	for i, owner := range owners(plan, ranks) {
		if owner == int32(rank) || mode == Replicate && owner >= 0 {
			mine.add(i)
		}
	}
	return mine
}

// owners returns the rank that gets each item of a partition, -1 for folders.
//
// A share is a range of the plan, so that few files change owners when the data set changes. Shares
// differ by at most the weight of a file.
func owners(plan *Plan, ranks int) []int32 {
	total := int64(0)
	for i := range plan.Items {
		if plan.Items[i].Kind == Regular {
			total += plan.Items[i].weight()
		}
	}
	all, before := make([]int32, len(plan.Items)), int64(0)
	for i := range plan.Items {
		switch item := &plan.Items[i]; item.Kind {
		case Folder:
			all[i] = -1
		case Regular:
			all[i] = share(before+item.weight()/2, total, ranks)
			before += item.weight()
		default:
			all[i] = share(before, total, ranks)
		}
	}
	return all
}

// share returns which of ranks equal parts of [0, total) contains at.
func share(at, total int64, ranks int) int32 {
	return int32(min(at/max(total/int64(ranks), 1), int64(ranks)-1))
}

// A readShare is what one rank reads: files in the order of the plan, and its part of the bytes and
// of the files that all ranks read, 0 to 1.
type readShare struct {
	items                  []int
	bytesShare, opensShare float64
}

// readers assigns each file that any rank is missing to a rank that misses it, balanced by bytes,
// and returns rank's part. needs is indexed by rank.
func readers(plan *Plan, needs []set, rank int) (h readShare) {
	load, wanted, total, own := make([]int64, len(needs)), 0, int64(0), int64(0)
	for i := range plan.Items {
		item, reader := &plan.Items[i], -1
		for r, need := range needs {
			if need.has(i) && (reader < 0 || load[r] < load[reader]) {
				reader = r
			}
		}
		if reader < 0 || item.Kind != Regular {
			continue
		}
		load[reader] += item.weight()
		wanted, total = wanted+1, total+item.Size
		if reader == rank {
			h.items = append(h.items, i)
			own += item.Size
		}
	}
	h.bytesShare = float64(own) / float64(max(total, 1))
	h.opensShare = float64(len(h.items)) / float64(max(wanted, 1))
	return h
}

// chain returns the other ranks that miss item i, in the order of a ring starting at rank: each
// forwards it to the next.
func chain(needs []set, i, rank int) []int32 {
	var after []int32
	for step := 1; step < len(needs); step++ {
		if r := (rank + step) % len(needs); needs[r].has(i) {
			after = append(after, int32(r))
		}
	}
	return after
}
