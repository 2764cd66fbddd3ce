package stager

import (
	"iter"
	"math"

	"rankpool/scheduler/draw"
)

// Several trainings may use a data set at the same time. Each is a lane of the stager: it has its
// own plans, window and requests, and goes at its own pace. Samples are stored once for all lanes;
// which stay depends on their next use in any lane (store.go).

// lane is one training's part of a stager.
type lane struct {
	stager *Stager
	number int
	own    partition // the lane's view of this rank's samples
	locals []int     // this rank's trainers

	undecided []undecided // own draws in the window, in order

	plans     []*planned // oldest first
	plansLeft int        // that were released
	cur       *planned   // the plan the window's end is in
	batch     int        // the next batch of cur to enter the window
	// by trainer: position of the furthest batch requested, -1 before the first
	progress []int64
	demand   int64 // furthest position that a local trainer waits for
	asked    int64 // furthest position that a peer asked for
	offset   int64 // of the lane's positions on the scale of needs, see demandUpTo

	parts     map[partKey]*part
	recent    *part // that partOf returned last, if it is one of parts
	promises  promises
	early     []Asked // requested before the window got there
	heldBytes int64   // of the samples in parts and promises
	tierHits  map[int]int
	// the packages that come next, in order, and the package counts by epoch
	packs         []*pack
	packageCounts map[int]PackageCount
	// for a probe of cur: the position that each was last read for
	probed map[draw.SampleID]int64
}

func (s *Stager) onLaneOpened(e LaneOpened) {
	if e.Lane < 0 || s.lane(e.Lane) != nil {
		return
	}
	l := &lane{
		stager: s, number: e.Lane, demand: -1, asked: -1, parts: map[partKey]*part{},
		progress: make([]int64, len(e.World)), tierHits: map[int]int{}, probed: map[draw.SampleID]int64{},
		packageCounts: map[int]PackageCount{},
		own:           partition{store: &s.store, rank: s.cfg.Rank, lane: e.Lane, drew: s.cfg.Drew},
	}
	l.promises.byKey = map[promiseKey][]draw.SampleID{}
	for t, rank := range e.World {
		l.progress[t] = -1
		if int(rank) == s.cfg.Rank {
			l.locals = append(l.locals, t)
		}
	}
	l.offset = int64(s.Demand())
	for len(s.lanes) <= e.Lane {
		s.lanes = append(s.lanes, nil)
	}
	s.lanes[e.Lane] = l
	s.store.join(&l.own)
}

// onLaneClosed releases everything that a lane holds. The samples that only it would have used are
// evicted first.
func (s *Stager) onLaneClosed(e LaneClosed) {
	l := s.lane(e.Lane)
	if l == nil {
		return
	}
	l.decideUpTo(math.MaxInt64)
	l.dropParts(func(*part) bool { return true })
	l.promises.expire(math.MaxInt64, l.letGo)
	l.dropPackages(math.MaxInt64)
	s.lanes[e.Lane] = nil
	s.store.leave(&l.own)
	for _, asked := range l.early {
		s.take(asked)
	}
}

// lane returns an open lane, or nil.
func (s *Stager) lane(number int) *lane {
	if number < 0 || number >= len(s.lanes) {
		return nil
	}
	return s.lanes[number]
}

// open yields the lanes that are open, in order.
func (s *Stager) open() iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		for _, l := range s.lanes {
			if l != nil && !yield(l) {
				return
			}
		}
	}
}

// demandUpTo records that a trainer waits for a position. The lane that is furthest ahead sets the
// scale on which the reads of all lanes are ordered; a lane that has fallen behind is moved up to
// it, so that it cannot claim what it has missed.
func (l *lane) demandUpTo(pos int64) {
	l.demand = max(l.demand, pos)
	l.offset = max(l.offset, int64(l.stager.Demand())-l.demand)
}

// needOf converts a position to the scale of needs.
func (l *lane) needOf(pos int64) uint64 { return uint64(max(l.offset+pos, 0)) }

// letGo ends the hold of a part or a promise on a sample.
func (l *lane) letGo(id draw.SampleID) {
	l.heldBytes -= l.stager.cfg.Size(id)
	l.stager.unpin(id)
}

// shareOfWindow returns how many bytes a lane may read ahead or have in use: an equal share of what
// paused lanes leave of the window.
func (l *lane) shareOfWindow() int64 {
	going, left := int64(0), l.stager.cfg.WindowBytes
	for m := range l.stager.open() {
		if m == l || m.own.goes() {
			going++
		} else {
			left -= m.heldBytes
		}
	}
	if going == 1 && left == l.stager.cfg.WindowBytes {
		return math.MaxInt64 // a lane alone: only the whole window is bounded
	}
	return left / going
}

// makeRoom decides on draws of batches that the slowest trainer has requested, oldest first, until
// the window holds at most bytes.
func (s *Stager) makeRoom(bytes int64) {
	for l := range s.open() {
		if l.cur == nil {
			continue
		}
		slowest, local := l.slowest()
		for local && len(l.undecided) > 0 && l.undecided[0].position < slowest &&
			s.windowBytes > bytes {
			l.decideUpTo(l.undecided[0].position)
		}
	}
}
