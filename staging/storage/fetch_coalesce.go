package storage

import "slices"

const (
	// DefaultCoalesceBytes is the default bound of a coalesced read: the size of a Lustre RPC, and of
	// a stripe by default.
	//
	// Source: Lustre 2.16, LOV_DESC_STRIPE_SIZE_DEFAULT; max_pages_per_rpc of 1,024 pages.
	DefaultCoalesceBytes = 4 << 20

	// maxJoined bounds the samples in one read, so that not too many wait for its end.
	maxJoined = 64
)

// coalesce returns r and the waiting reads that the same request serves, in file order: neighbours
// in the same shard with gaps of at most maxGapBytes, at most maxBytes in all. A read that training
// waits for (demanded) is coalesced only with reads that are needed as soon, so others never delay
// it.
func coalesce(r *read, demanded bool, maxBytes int64) []*read {
	if r.shard == nil || r.tries > 0 || maxBytes <= 0 {
		return []*read{r}
	}
	all := r.shard.reads
	at, _ := slices.BinarySearchFunc(all, r, inFile)
	first, last := at, at
	joins := func(i int, from, to int64) bool {
		return i >= 0 && i < len(all) && all[i].tries == 0 && (!demanded || all[i].need <= r.need) &&
			to-from <= maxBytes &&
			last-first+1 < maxJoined
	}
	near := func(gap int64) bool { return gap >= 0 && gap <= maxGapBytes }
	for last+1 < len(all) && joins(last+1, r.from, all[last+1].to) &&
		near(all[last+1].from-all[last].to) {
		last++
	}
	for first > 0 && joins(first-1, all[first-1].from, all[last].to) &&
		near(all[first].from-all[first-1].to) {
		first--
	}
	return slices.Clone(all[first : last+1])
}
