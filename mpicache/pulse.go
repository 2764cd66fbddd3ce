package mpicache

import (
	"fmt"
	"sync"
	"time"

	"rankpool/mpicache/liveness"
	"rankpool/mpicache/message"
	"rankpool/mpicache/transport"
)

// A Pulse sends the other ranks signs of life, and notices when theirs stop. It begins as soon as
// the ranks have met, while they still read their indexes and allocate their memory. It needs no
// storage, plan or disk.
//
// Signs of life are messages. Those from and to rank 0 are sent every liveness.Every(bound); those
// between other ranks, of which there are many pairs, less often: they detect a network that is cut
// only between two ranks that both reach rank 0. MPI itself does not report a rank that is stopped
// or hangs, whose node is lost or whose network is cut, or does so only after a quarter of an hour.
type Pulse struct {
	transport transport.Transport
	bound     time.Duration
	lost      func(rank int)
	began     time.Time
	stop      chan struct{}
	beating   sync.WaitGroup

	mu    sync.Mutex
	watch *liveness.Watch // over all ranks
	left  map[int]bool    // ranks not to miss: those that said that they leave, and this one
	turns int             // each rank but 0 gets a sign in one of this many beats
	turn  int             // of the newest beat
	hung  func(rank int)  // the node's, once there is one; called at each beat while a rank is lost
}

// signsWithin is how many signs of life are due from each other rank within the bound: at 1,024
// ranks and a bound of two minutes a rank sends 70 a second.
const signsWithin = 8

// NewPulse starts a pulse. All ranks use the channel t for the pulse only. When another rank has
// shown no sign of life for bound (> 0), lost is called, once until the rank is heard from again.
func NewPulse(t transport.Transport, bound time.Duration, lost func(rank int)) *Pulse {
	p := newPulse(t, bound, lost)
	t.Start(func(from int, _ []byte) { p.heard(from, false) })
	p.beating.Go(func() {
		ticks := time.NewTicker(liveness.Every(bound))
		defer ticks.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-ticks.C:
				p.beat(time.Since(p.began))
			}
		}
	})
	return p
}

// newPulse returns a pulse that does not beat by itself.
func newPulse(t transport.Transport, bound time.Duration, lost func(rank int)) *Pulse {
	return &Pulse{
		transport: t, bound: bound, lost: lost, began: time.Now(), stop: make(chan struct{}),
		turns: max(1, int(bound/signsWithin/liveness.Every(bound))),
		watch: liveness.NewWatch(t.Size(), bound), left: map[int]bool{t.Rank(): true},
	}
}

// Stop ends the pulse, and waits for its running callbacks. The other ranks will miss this one.
func (p *Pulse) Stop() {
	close(p.stop)
	p.beating.Wait()
}

// attach makes the pulse call hung at each beat while a rank is lost.
func (p *Pulse) attach(hung func(rank int)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hung = hung
}

// next returns the ranks to send the next sign of life to.
func (p *Pulse) next() (to []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	own := p.transport.Rank()
	for r := range p.transport.Size() {
		if r != own && (own == 0 || r == 0 || (p.turn+r)%p.turns == 0) {
			to = append(to, r)
		}
	}
	return to
}

// heard records a sign of life from a rank; leaves means that it is leaving, and will send no more.
func (p *Pulse) heard(from int, leaves bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if leaves {
		p.left[from] = true
	}
	p.watch.Heard(from)
}

// tick sets the time, and returns the ranks that have now become silent for too long, all that are,
// and the node's function.
func (p *Pulse) tick(now time.Duration) (newly, all []int, hung func(rank int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.left {
		p.watch.Heard(r)
	}
	newly = p.watch.Tick(now)
	for r := range p.transport.Size() {
		if p.watch.Lost(r) {
			all = append(all, r)
		}
	}
	return newly, all, p.hung
}

// beat sends this rank's signs of life, and reports the ranks that are silent.
func (p *Pulse) beat(now time.Duration) {
	for _, rank := range p.next() {
		p.transport.Post(rank, []byte{message.Beat})
	}
	newly, all, hung := p.tick(now)
	for _, rank := range newly {
		p.lost(rank)
	}
	if len(all) > 0 && hung != nil {
		hung(all[0])
	}
}

// refusePlans tells the trainers that wait for a plan to retry later, since a rank is lost: they
// should wait, but not forever.
func (n *Node) refusePlans(lost int) {
	why := fmt.Sprintf("rank %d has not answered for %v, and a plan needs what its trainers report",
		lost, n.cfg.Pulse.bound)
	for _, s := range n.rank.All() {
		s.Refuse(why)
	}
}
