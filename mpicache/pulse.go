package mpicache

import (
	"fmt"
	"sync"
	"time"

	"rankpool/mpicache/liveness"
	"rankpool/scheduler"
)

// pulse records the signs of life of the other ranks, which are messages. Those from and to rank 0
// are sent every Every(Config.RankTimeout); those between other ranks, of which there are many
// pairs, less often: they find a network that is cut only between two of them, while both reach
// rank 0. MPI itself does not report a rank that is stopped or hangs, whose node is lost or whose
// network is cut, or only after a quarter of an hour. A message needs nothing but the transport: no
// storage, no plan, no disk.
type pulse struct {
	mu    sync.Mutex
	ranks []int // the others
	watch *liveness.Watch
	// those that have been heard of: one may take its memory for minutes while others serve
	seen  map[int]bool
	left  map[int]bool // those that have announced that they leave
	turns int          // another rank than 0 gets a sign in one of so many beats
	turn  int
}

func (p *pulse) init(rank, size int, bound time.Duration) {
	p.ranks = nil
	for r := range size {
		if r != rank {
			p.ranks = append(p.ranks, r)
		}
	}
	p.turns = 1
	if bound > 0 {
		p.turns = max(1, int(bound/signsWithin/liveness.Every(bound)))
	}
	p.watch, p.seen, p.left = liveness.NewWatch(len(p.ranks), bound), map[int]bool{}, map[int]bool{}
}

// signsWithin is how many signs of life of each other rank are due within the bound: at 1,024 ranks
// and a bound of two minutes a rank sends 70 a second.
const signsWithin = 8

// next returns the ranks that this rank shows its next sign of life.
func (p *pulse) next(rank int) (to []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	for _, r := range p.ranks {
		if rank == 0 || r == 0 || (p.turn+r)%p.turns == 0 {
			to = append(to, r)
		}
	}
	return to
}

// heard notes a sign of life of a rank, or that it leaves, and will show no more.
func (p *pulse) heard(from int, leaves bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[from], p.left[from] = true, p.left[from] || leaves
	for at, r := range p.ranks {
		if r == from {
			p.watch.Heard(at)
		}
	}
}

// tick sets the time, and returns the ranks that have now been silent for too long, and all that
// are. A rank that has never been heard of is one of all only.
func (p *pulse) tick(now time.Duration) (newly, all []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, r := range p.ranks {
		if p.left[r] {
			p.watch.Heard(at)
		}
	}
	for _, at := range p.watch.Tick(now) {
		if p.seen[p.ranks[at]] {
			newly = append(newly, p.ranks[at])
		}
	}
	for at, r := range p.ranks {
		if p.watch.Lost(at) {
			all = append(all, r)
		}
	}
	return newly, all
}

// beats reports whether ranks show each other that they live.
func (n *Node) beats() bool { return n.cfg.RankTimeout > 0 && n.cfg.Transport.Size() > 1 }

// keepBeating beats until the node ends.
func (n *Node) keepBeating() {
	t := time.NewTicker(liveness.Every(n.cfg.RankTimeout))
	defer t.Stop()
	for {
		select {
		case <-n.halted:
			return
		case <-t.C:
		}
		n.beat()
	}
}

// beat shows this rank's sign of life, and misses those of the others.
func (n *Node) beat() {
	for _, rank := range n.pulse.next(n.cfg.Transport.Rank()) {
		n.cfg.Transport.Post(rank, []byte{messageBeat})
	}
	newly, all := n.pulse.tick(n.now().Sub(n.started))
	for _, rank := range newly {
		n.cfg.Lost(rank)
	}
	if len(all) > 0 {
		n.refusePlans(
			fmt.Sprintf(
				"rank %d has not answered for %v, and a plan needs what its trainers report",
				all[0], n.cfg.RankTimeout))
	}
}

// refusePlans answers the trainers that wait for a plan that there is none: they wait, but not for
// ever.
func (n *Node) refusePlans(why string) {
	for _, s := range n.all() {
		s.locked(func() { s.coordinate(scheduler.Hung{Why: why}) })
	}
}
