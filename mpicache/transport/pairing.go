package transport

import (
	"fmt"
	"maps"
)

// A pairing matches the Puts and the Takes of one memory, in either order, and copies. It is not
// safe for concurrent use.
type pairing struct {
	puts, takes map[pairKey]half
}

// pairKey names a transfer into this memory.
type pairKey struct {
	from   int
	ticket uint32
}

// half is a Put or a Take whose counterpart has not been called yet.
type half struct {
	segs [][]byte
	done func(error)
}

func newPairing() *pairing {
	return &pairing{puts: map[pairKey]half{}, takes: map[pairKey]half{}}
}

// put matches a waiting take, or waits.
func (p *pairing) put(key pairKey, put half) { meet(key, put, p.puts, p.takes, copyOver) }

// take matches a waiting put, or waits.
func (p *pairing) take(key pairKey, take half) {
	meet(key, take, p.takes, p.puts, func(take, put half) { copyOver(put, take) })
}

// forget drops the Puts of a rank.
func (p *pairing) forget(from int) {
	maps.DeleteFunc(p.puts, func(key pairKey, _ half) bool { return key.from == from })
}

// meet calls both with mine and the half that waits in theirs; without one, mine waits.
func meet(key pairKey, mine half, ours, theirs map[pairKey]half, both func(mine, other half)) {
	if other, ok := theirs[key]; ok {
		delete(theirs, key)
		both(mine, other)
		return
	}
	if _, ok := ours[key]; ok {
		mine.done(fmt.Errorf("transport: ticket %d from rank %d is in use", key.ticket, key.from))
		return
	}
	ours[key] = mine
}

// copyOver copies and completes both sides.
func copyOver(put, take half) {
	err := sameLengths(put.segs, take.segs)
	if err == nil {
		for i := range put.segs {
			copy(take.segs[i], put.segs[i])
		}
	}
	put.done(nil)
	take.done(err)
}

func sameLengths(put, take [][]byte) error {
	if len(put) != len(take) {
		return fmt.Errorf("transport: a Put of %d segments met a Take of %d", len(put), len(take))
	}
	for i := range put {
		if len(put[i]) != len(take[i]) {
			return fmt.Errorf("transport: segment %d of a Put has %d bytes, of its Take %d", i,
				len(put[i]), len(take[i]))
		}
	}
	return nil
}
