package systems

// rooms holds the free bytes of each rank in a tree of maxima. A change takes O(log ranks).
type rooms struct {
	leaves int // a power of two, at least the ranks
	// most[i] is the larger of most[2i] and most[2i+1]; rank r is leaf leaves+r; the leaves after
	// the ranks are -1
	most []int64
}

func newRooms(bytes []int64) *rooms {
	t := &rooms{leaves: 1}
	for t.leaves < len(bytes) {
		t.leaves *= 2
	}
	t.most = make([]int64, 2*t.leaves)
	for i := range t.most {
		t.most[i] = -1
	}
	copy(t.most[t.leaves:], bytes)
	for i := t.leaves - 1; i > 0; i-- {
		t.most[i] = max(t.most[2*i], t.most[2*i+1])
	}
	return t
}

// of returns the free bytes of a rank; they are negative if a sample did not quite fit.
func (t *rooms) of(rank int32) int64 { return t.most[t.leaves+int(rank)] }

func (t *rooms) add(rank int32, bytes int64) {
	i := t.leaves + int(rank)
	t.most[i] += bytes
	for i /= 2; i > 0; i /= 2 {
		t.most[i] = max(t.most[2*i], t.most[2*i+1])
	}
}

// widest returns the rank with the most free bytes, the first in a tie.
func (t *rooms) widest() int32 {
	i := 1
	for i < t.leaves {
		i *= 2
		if t.most[i] < t.most[i/2] {
			i++
		}
	}
	return int32(i - t.leaves)
}
