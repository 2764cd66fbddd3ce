package stage

import (
	"cmp"
	"math/bits"
	"slices"
)

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
// differ by at most the weight of a file. The names of an inode stay together.
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
			all[i] = share(2*before+item.weight(), 2*total, ranks)
			before += item.weight()
		case HardLink:
			all[i] = all[item.Primary]
		default:
			all[i] = share(before, total+1, ranks)
		}
	}
	return all
}

// share returns which of ranks equal parts of [0, total) contains at, 0 ≤ at ≤ total. It uses
// integers, so that all machines agree.
func share(at, total int64, ranks int) int32 {
	high, low := bits.Mul64(uint64(at), uint64(ranks))
	part, _ := bits.Div64(high, low, uint64(total))
	return int32(min(int(part), ranks-1))
}

// A piece is a stretch of a file that is read in one go: the whole file, unless the file is cut.
type piece struct {
	item          int
	offset, bytes int64
	number, of    int     // which of the file's pieces, from 0, and how many
	chain         []int32 // the ranks that get it from its reader, once it has one
}

// weight is the cost of a piece for balancing, like Item.weight.
func (p piece) weight() int64 { return p.bytes + openBytes }

// cut returns the pieces of item i: cutBytes each, the last one may be shorter. A sparse file
// stays whole, since only its reader knows its holes.
func cut(plan *Plan, i int, cutBytes int64) []piece {
	item := &plan.Items[i]
	if item.Size <= cutBytes || item.Sparse {
		return []piece{{item: i, bytes: item.Size, of: 1}}
	}
	of := int((item.Size + cutBytes - 1) / cutBytes)
	all := make([]piece, of)
	for n := range all {
		at := int64(n) * cutBytes
		all[n] = piece{item: i, offset: at, bytes: min(cutBytes, item.Size-at), number: n, of: of}
	}
	return all
}

// A readShare is what one rank reads: pieces in the order of the plan.
type readShare struct {
	pieces                 []piece
	bytesShare, opensShare float64 // of what all ranks read, 0 to 1
}

// readers assigns each file that any rank is missing, in pieces if it is larger than cutBytes, to
// ranks that miss it, balanced by bytes. It returns rank's part. needs is indexed by rank.
func readers(plan *Plan, needs []set, rank int, cutBytes int64) readShare {
	var wanted []piece
	for i := range plan.Items {
		if plan.Items[i].Kind == Regular && slices.ContainsFunc(
			needs, func(s set) bool { return s.has(i) }) {
			wanted = append(wanted, cut(plan, i, cutBytes)...)
		}
	}
	opens := len(wanted)
	slices.SortStableFunc(wanted, func(a, b piece) int { return -cmp.Compare(a.bytes, b.bytes) })
	load, total, own := make([]int64, len(needs)), int64(0), int64(0)
	var h readShare
	for _, p := range wanted {
		reader := -1
		for r, need := range needs {
			if need.has(p.item) && (reader < 0 || load[r] < load[reader]) {
				reader = r
			}
		}
		load[reader] += p.weight()
		total += p.bytes
		if reader == rank {
			p.chain = chain(needs, p.item, rank)
			h.pieces = append(h.pieces, p)
			own += p.bytes
		}
	}
	slices.SortFunc(h.pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.item, b.item), cmp.Compare(a.offset, b.offset))
	})
	h.bytesShare = float64(own) / float64(max(total, 1))
	h.opensShare = float64(len(h.pieces)) / float64(max(opens, 1))
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

// A unit is what one goroutine reads at a time: one large piece, or neighbours that fit into a
// chunk together and have the same chain.
type unit struct {
	pieces []piece
	chain  []int32
	large  bool
}

// bundleFiles bounds the files of a unit, so that storage's latency, paid once per file, does not
// delay a chunk for long.
const bundleFiles = 64

func units(plan *Plan, h readShare, chunkBytes int) []unit {
	var all []unit
	var bundle unit
	filled := int64(0)
	flush := func() {
		if len(bundle.pieces) > 0 {
			all = append(all, bundle)
		}
		bundle, filled = unit{}, 0
	}
	for _, p := range h.pieces {
		if item := &plan.Items[p.item]; item.Size > int64(chunkBytes) || item.Sparse {
			all = append(all, unit{pieces: []piece{p}, chain: p.chain, large: true})
			continue
		}
		if filled+p.bytes > int64(chunkBytes) || len(bundle.pieces) == bundleFiles ||
			!slices.Equal(bundle.chain, p.chain) {
			flush()
		}
		bundle.chain = p.chain
		bundle.pieces = append(bundle.pieces, p)
		filled += p.bytes
	}
	flush()
	return all
}
