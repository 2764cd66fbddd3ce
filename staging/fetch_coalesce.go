package staging

import "slices"

const (
	// DefaultCoalesceBytes bounds a joined read when FetchOptions does not say: the size of a Lustre
	// RPC, and of a stripe by default.
	//
	// Source: Lustre 2.16, LOV_DESC_STRIPE_SIZE_DEFAULT; max_pages_per_rpc of 1,024 pages.
	DefaultCoalesceBytes = 4 << 20

	// maxJoined bounds the samples in one read, so that the end of one does not keep too many waiting.
	maxJoined = 64
)

// company returns r and the waiting reads that are to be done by the same request, in the order of
// their places in the file: neighbours in the same shard with at most maxGapBytes in between,
// coalesce bytes in all at most. A read that training waits for (demanded) takes along only what is
// needed as soon, so it is never held up for others.
func company(r *read, demanded bool, coalesce int64) []*read {
	if r.shard == nil || r.tries > 0 || coalesce <= 0 {
		return []*read{r}
	}
	all := r.shard.reads
	at, _ := slices.BinarySearchFunc(all, r, inFile)
	first, last := at, at
	joins := func(i int, from, to int64) bool {
		return i >= 0 && i < len(all) && all[i].tries == 0 && (!demanded || all[i].need <= r.need) &&
			to-from <= coalesce && last-first+1 < maxJoined
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
