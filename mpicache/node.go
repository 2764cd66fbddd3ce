package mpicache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/door"
	"rankpool/mpicache/slab"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/transport"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/systems"
)

// Storage reads samples. Package staging/storage implements it.
type Storage interface {
	// Fetch reads the sample into into, which has its size, and calls done once, from any
	// goroutine. Samples with smaller needs are read first.
	Fetch(id draw.SampleID, into []byte, need uint64, done func(error))
	// Demand announces that a trainer waits for all reads with this need or a smaller one.
	Demand(need uint64)
}

// DataSet is a data set that a node serves.
type DataSet struct {
	Name      string
	Samples   int
	Identity  string // its digest, the same on all ranks; "": unknown
	Times     string // the digest of its modification times, on this node
	Root      string
	IndexPath string // of the sample index that clients map
	Size      func(draw.SampleID) int64
	Label     func(draw.SampleID) int
	Storage   Storage

	PartitionBytes []int64 // capacity of every rank's partition, the same on all ranks
	// BookBytes is the total memory of all ranks, as Size counts it, for a system that chooses by
	// epoch.
	BookBytes   int64
	WindowBytes int64 // for samples read ahead or in use, beyond this rank's partition

	// TierBytes is the capacity of every rank's tier, in whole blocks of TierBlockBytes, the same on
	// all ranks. nil: no tiers.
	TierBytes      []int64
	TierBlockBytes int64
	Tier           Tier // this rank's; nil if it has none, or cannot use it

	// Packages holds this rank's packages, by number, for a system that uses packages. Its capacity is
	// PackageBytes, in whole blocks of PackageBlockBytes. nil: samples of packages are read one by
	// one.
	Packages                        Tier
	PackageBytes, PackageBlockBytes int64

	// KeepsCopies means that each rank keeps copies of its samples on its node's disk, and therefore
	// reads its samples for other ranks, too. It is the same on all ranks.
	KeepsCopies bool
	Kept        Kept // this rank's copies; nil if it has none, or cannot use them
}

// Config is the configuration of a node. The node does not close anything in it.
type Config struct {
	Transport transport.Transport
	Data      []DataSet
	SlabBytes int64
	// Memory is what TakeBack returned. The node uses SlabBytes of it. nil: the node allocates memory.
	Memory  *slab.Slab
	System  string // what the ranks run, for systems.Find; "": rankpool
	Policy  string
	Options systems.Values // of the policy's and the sampler's system
	Scorer  string         // makes scores of reports; "": the sampler's own
	// the sampler that training must use, except for sequential passes; "": any
	Sampler     string
	Assignment  plan.Assignment
	PeerTimeout time.Duration
	// Pulse, if not nil, watches the other ranks. While one is lost, requests for plans are refused.
	Pulse *Pulse
	// Spoilt is called when another process has written to the directory in the memory. The node
	// cannot continue, and Spoilt must not return; nil: the node panics. The memory is not taken over
	// again.
	Spoilt    func(why error)
	Dir       string // this rank's folder: door.sock, importance states
	StatePath string // where rank 0 saves importance; "": nowhere
	// StateOptional lets a training begin with whatever scores exist if the state file is not the one
	// that it needs.
	StateOptional bool
	Session       string // sent to clients
	// by rank: what restarted ranks know of the trainings before; nil: nothing
	Before [][]Before
	// names this start of the training in the run log; restarted ranks keep it; "": none
	Launch string
	// JobIdle is how long a training with a job name may have no process on any rank before it ends;
	// 0: ten seconds.
	JobIdle time.Duration
	Log     *slog.Logger     // at most one line a second in steady state
	Record  func(record any) // called on rank 0 with each line of the run log
	// Room, if not nil, returns how many bytes may be allocated before a process is killed for it. It
	// is called while the slab is allocated.
	Room func() int64
	// Tidy, if not nil, is called before, while and after a plan is made, which needs the most memory
	// and leaves the most garbage. For small plans it is called only now and then.
	Tidy func()
	// GiveBack, if not nil, returns how many bytes of the slab, which has slabBytes now, the node
	// should return to the system because memory is short (0: none), and after how long to call it
	// again (5 ms to 1 s). One goroutine calls it.
	GiveBack  func(slabBytes int64) (bytes int64, again time.Duration)
	NodeEvery time.Duration // between two lines of the run log about each rank; 0: none
	// Observe, if not nil, measures the machine: first before the door opens, then once a second. Its
	// arguments are how long the trainers here have waited for samples so far, in total, and how many
	// trainers there are.
	Observe func(stallSeconds float64, trainers int) stats.Machine
	Benefit Benefit // when to measure what the cache is worth to trainings
	// GiveUnused makes the node return memory that no training gains from to the system.
	GiveUnused bool

	outside outside // nil: the real world
}

// Node is a rank at run time: it owns the slab, the door and the exchange, and carries out the
// schedulers' decisions. Its methods may be called concurrently.
type Node struct {
	outside
	cfg      Config
	slab     *slab.Slab
	slabFD   int
	door     *door.Door
	streams  []*stream    // by data set: that of the training without a job name
	peers    []peerHealth // protected by connMu
	life     lifeSigns
	report   *reporter // rank 0
	observer observer
	// kept of the previous rank's keptOf residents were found in its memory.
	kept, keptOf int
	shrinker     shrinker
	started      time.Time
	bulk         atomic.Uint32
	tickets      atomic.Uint64
	lanes        atomic.Int32 // trainings that have begun and not ended
	planned      atomic.Int64 // samples planned since Tidy was called; 0: it never was
	// seatsChanged requests that the list of trainers be written.
	seatsChanged atomic.Bool
	halted       context.Context // done once halt was called
	halt         func()          // ends the goroutines that ticking counts
	stopped      chan struct{}
	stopOnce     sync.Once
	ticking      sync.WaitGroup

	besideMu sync.Mutex // held while a plan beside the training is made

	arenaMu sync.Mutex
	arena   *slab.Arena

	connMu sync.Mutex
	conns  map[*conn]struct{}
}

// doorName is the socket's name in the rank's folder.
const doorName = "door.sock"

// NewNode allocates the memory, opens the door and starts serving. If the memory or the socket
// cannot be created, it returns an error and leaves nothing behind.
func NewNode(cfg Config) (*Node, error) {
	n, err := newNode(cfg)
	if err != nil {
		return nil, err
	}
	if err := n.listen(); err != nil {
		return nil, errors.Join(err, n.slab.Close())
	}
	n.start()
	return n, nil
}

// newNode allocates the memory, and reads what earlier lives of the rank have left. The node is
// passive before start.
func newNode(cfg Config) (*Node, error) {
	memory, found, err := cfg.takeMemory()
	if err != nil {
		return nil, err
	}
	if cfg.outside == nil {
		cfg.outside = realWorld{}
	}
	cfg.SlabBytes = memory.SizeBytes() // whole pages: clients must map all that samples are put into
	n := &Node{
		outside: cfg.outside, cfg: cfg, slab: memory, slabFD: -1, arena: memory.Arena,
		conns: map[*conn]struct{}{}, peers: make([]peerHealth, cfg.Transport.Size()),
		stopped: make(chan struct{}), started: cfg.outside.now(),
		kept: len(found.whole), keptOf: found.residents,
		life: lifeSigns{heard: map[int]bool{}, all: make(chan struct{})},
	}
	n.halted, n.halt = context.WithCancel(context.Background())
	for i := range cfg.Data {
		n.streams = append(n.streams, newSamples(n, i).streams[0])
	}
	if cfg.Transport.Rank() == 0 {
		n.report = newReporter(n)
	}
	for _, e := range found.whole {
		s := n.streams[e.Set]
		s.recovered = append(s.recovered, draw.SampleID(e.Sample))
	}
	n.recall()
	n.observer.init(n)
	n.recordBegin()
	n.shrinker.init(n)
	return n, nil
}

// start begins to serve.
func (n *Node) start() {
	cfg := &n.cfg
	cfg.Transport.Start(n.onMessage)
	go n.door.Accept(cfg.Log, func(sock door.Socket) { n.newConn(sock).Serve() })
	n.ticking.Go(n.tick)
	cfg.Pulse.attach(n.refusePlans)
	if cfg.GiveBack != nil && cfg.SlabBytes > 0 {
		n.ticking.Go(n.shrinker.watch)
	}
}

func (n *Node) listen() error {
	if n.cfg.SlabBytes > 0 {
		fd, err := n.slab.ReadOnlyFD()
		if err != nil {
			return err
		}
		n.slabFD = fd
	}
	opened, err := door.Open(filepath.Join(n.cfg.Dir, doorName))
	n.door = opened
	return err
}

// Stopped is closed when SHUTDOWN arrives at the door.
func (n *Node) Stopped() <-chan struct{} { return n.stopped }

// tickInterval paces what is batched or bounded in time: reports to peers, time-outs, the closing
// of epochs. At 1,024 ranks reports leave twice a second, which is 2,000 messages per second and
// rank.
func (n *Node) tickInterval() time.Duration {
	return max(20*time.Millisecond, time.Duration(n.cfg.Transport.Size())*time.Millisecond/2)
}

func (n *Node) tick() {
	t := time.NewTicker(n.tickInterval())
	defer t.Stop()
	for now := range t.C {
		if n.halted.Err() != nil {
			return
		}
		n.doDue(now)
		n.observer.tick(now)
	}
}

// doDue does the periodic work that is due.
func (n *Node) doDue(now time.Time) {
	for _, s := range n.streams {
		s.tick(now)
	}
	n.keep()
}

// Close ends the node after training: it sends the epochs' counts to rank 0, which records the
// summary, closes the door, and releases the memory. It waits for peers for a short time.
func (n *Node) Close() error {
	n.TrainersLeave()
	n.halt()
	n.ticking.Wait()
	for _, s := range n.all() {
		s.finish()
	}
	within(readsTimeout, n.endReads) // the last line counts what storage returned
	n.observer.observe(n.now())
	if n.report != nil {
		n.report.finish(closeTimeout)
	} else {
		n.cfg.Transport.Post(0, []byte{messageBye})
	}
	return n.end()
}

// Abandon ends the node in the middle of training, as when another rank has died: trainers continue
// to read from storage, and will send their counts to the next node, so nothing is recorded here.
// Peers and storage may still write to the memory, which is therefore released only with the
// process.
func (n *Node) Abandon() error {
	n.halt()
	for _, s := range n.streams {
		s.locked(func() { s.closed = true })
	}
	return n.closeDoor()
}

// Training reports whether a trainer is connected.
func (n *Node) Training() bool { return n.trainers() > 0 }

// Trained reports whether a trainer has opened a data set here.
func (n *Node) Trained() bool {
	trained := false
	for _, s := range n.streams {
		s.locked(func() { trained = trained || s.stager != nil })
	}
	return trained
}

// end closes what is open and releases the memory.
func (n *Node) end() error {
	err := errors.Join(n.closeDoor(), n.cfg.Transport.Close())
	if !n.quiet() {
		n.cfg.Log.Warn("storage does not answer; the memory goes with the process")
		return err
	}
	if n.slabFD >= 0 {
		err = errors.Join(err, unix.Close(n.slabFD))
	}
	return errors.Join(err, n.slab.Close())
}

// closeTimeout bounds how long the end of a node waits for other processes.
const closeTimeout = 5 * time.Second

// readsTimeout bounds how long the last line about a rank waits for storage.
const readsTimeout = 2 * time.Second

// endReads closes all streams, so that they read nothing more, and waits for their reads.
func (n *Node) endReads() {
	for _, s := range n.streams {
		s.locked(func() { s.closed = true })
	}
	for _, s := range n.streams {
		s.reads.Wait()
	}
}

// quiet ends all streams and reports whether all reads into the slab have ended.
func (n *Node) quiet() bool {
	return within(closeTimeout, func() {
		for _, s := range n.streams {
			if s.data.Tier != nil {
				s.data.Tier.End()
			}
			if s.data.Packages != nil {
				s.data.Packages.End()
			}
		}
		n.endReads()
		for _, s := range n.all() {
			s.awaitStates()
		}
	})
}

// within reports whether f, which continues on its own, returns in time.
func within(timeout time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(timeout):
		return false
	}
}

// TrainersLeave gives ending trainers a moment, in which the node reads what is left on connections
// whose clients are gone, and reports whether all have disconnected.
func (n *Node) TrainersLeave() bool {
	for range 50 {
		if !n.Training() {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return !n.Training()
}

// trainers returns the number of connected training processes, each with one connection or more:
// its sentinel and its workers have separate connections.
func (n *Node) trainers() int {
	n.connMu.Lock()
	defer n.connMu.Unlock()
	type process struct {
		trainer uint32
		family  uint64
	}
	open := map[process]bool{}
	for c := range n.conns {
		if t, family := c.whose(); t != door.ControlTrainer {
			open[process{t, family}] = true
		}
	}
	return len(open)
}

// closeDoor admits no more clients, and ends the connections of all.
func (n *Node) closeDoor() error {
	err := n.door.Close()
	n.connMu.Lock()
	defer n.connMu.Unlock()
	for c := range n.conns {
		c.HangUp()
	}
	return err
}

func (n *Node) alloc(sizeBytes int64) (off int64, ok bool) {
	n.arenaMu.Lock()
	defer n.arenaMu.Unlock()
	return n.arena.Alloc(max(sizeBytes, 1))
}

func (n *Node) free(off int64) {
	n.arenaMu.Lock()
	defer n.arenaMu.Unlock()
	if !n.arena.Has(off) {
		n.spoilt("it frees place %d, which holds no sample", off)
	}
	n.arena.Free(off)
}

// spoilt ends the node.
func (n *Node) spoilt(format string, args ...any) {
	forgetSlab(n.cfg.Dir)
	err := fmt.Errorf("mpicache: another process has written to the directory of the memory for "+
		"samples: "+format, args...)
	if n.cfg.Spoilt != nil {
		n.cfg.Spoilt(err)
	}
	panic(err)
}
