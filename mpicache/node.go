package mpicache

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/client"
	"rankpool/mpicache/door"
	"rankpool/mpicache/message"
	"rankpool/mpicache/outside"
	"rankpool/mpicache/slab"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/store"
	"rankpool/mpicache/training"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/systems"
)

type (
	// DataSet is a data set that a node serves.
	DataSet = store.DataSet
	// Storage reads samples.
	Storage = store.Storage
	// Tier keeps copies of samples on a disk of the node.
	Tier = store.Tier
	// Kept keeps copies of samples on a disk of the node beyond the end of this rank.
	Kept = store.Kept
)

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
	// Watch watches the other ranks. While one is lost, requests for plans are refused.
	Watch *ranks.Watch
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

	outside outside.World // nil: the real one
}

// Node is a rank at run time: it owns the slab, the door and the exchange, and carries out the
// schedulers' decisions. Its methods may be called concurrently.
type Node struct {
	outside.World
	cfg      Config
	slab     *slab.Slab
	slabFD   int
	memory   *store.Memory
	peers    *store.Peers
	rank     *training.Rank
	door     *door.Door
	clients  *client.Door
	report   *reporter // rank 0
	observer observer
	// kept of the previous rank's keptOf residents were found in its memory.
	kept, keptOf int
	shrinker     shrinker
	halted       context.Context // done once halt was called
	halt         func()          // ends the goroutines that ticking counts
	stopped      chan struct{}
	stopOnce     sync.Once
	ticking      sync.WaitGroup
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
		cfg.outside = outside.Real{}
	}
	cfg.SlabBytes = memory.SizeBytes() // whole pages: clients must map all that samples are put into
	n := &Node{
		World: cfg.outside, cfg: cfg, slab: memory, slabFD: -1, clients: client.NewDoor(),
		stopped: make(chan struct{}),
		kept:    len(found.whole), keptOf: found.residents,
	}
	n.memory = store.NewMemory(memory, n.spoilt)
	n.peers = store.NewPeers(cfg.Transport.Size(), cfg.PeerTimeout, cfg.Log)
	n.halted, n.halt = context.WithCancel(context.Background())
	if cfg.Transport.Rank() == 0 {
		n.report = newReporter(n)
	}
	n.rank = training.NewRank(&store.Rank{
		World: n.World, Transport: cfg.Transport, Memory: n.memory, Peers: n.peers, Halted: n.halted,
		Log: cfg.Log,
	}, n.trainingConfig(), n.cfg.Data)
	for _, e := range found.whole {
		n.rank.Sets[e.Set].Store().Recover(draw.SampleID(e.Sample))
	}
	n.observer.init(n)
	n.recordBegin()
	n.shrinker.init(n)
	n.clients.Config = client.Config{
		Rank: n.rank, Sampler: cfg.Sampler, Welcome: n.welcome(), SlabFD: -1, Status: n.status,
		Shutdown: func() { n.stopOnce.Do(func() { close(n.stopped) }) },
	}
	return n, nil
}

// trainingConfig returns what trainings depend on.
func (n *Node) trainingConfig() training.Config {
	cfg := &n.cfg
	t := training.Config{
		System: cfg.system(), Policy: cfg.Policy, Options: cfg.Options, Scorer: cfg.Scorer,
		Assignment: cfg.Assignment, Dir: cfg.Dir, StatePath: cfg.StatePath,
		StateOptional: cfg.StateOptional, JobIdle: cfg.JobIdle, Record: cfg.Record,
		NodeEvery: cfg.NodeEvery, Tidy: cfg.Tidy, ConnsOf: n.clients.OfFamily, Measures: n.measures,
		Divide: func() { n.shrinker.divide.Store(true) },
	}
	if n.report != nil {
		t.Counted = n.report.add
	}
	return t
}

// welcome describes the rank to its clients.
func (n *Node) welcome() door.Welcome {
	cfg := &n.cfg
	w := door.Welcome{
		Rank: cfg.Transport.Rank(), Ranks: cfg.Transport.Size(), SlabBytes: cfg.SlabBytes,
		Session: cfg.Session, PlanVersion: plan.Version, Options: cfg.Options.String(),
		Sampler: cmp.Or(cfg.Sampler, cfg.system().LiveSampler()),
	}
	for _, d := range cfg.Data {
		w.Data = append(w.Data, door.WelcomeData{
			Name: d.Name, Samples: d.Samples, Index: d.IndexPath, Root: d.Root,
			Identity: d.Identity, Times: d.Times,
		})
	}
	return w
}

// start begins to serve.
func (n *Node) start() {
	cfg := &n.cfg
	cfg.Transport.Start(n.onMessage)
	go n.door.Accept(cfg.Log, func(sock door.Socket) { n.clients.New(sock).Serve() })
	n.ticking.Go(n.tick)
	cfg.Watch.While(n.refusePlans)
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
		n.slabFD, n.clients.SlabFD = fd, fd
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
	for _, s := range n.rank.Sets {
		s.Tick(now)
	}
	n.rank.Keep()
}

// Close ends the node after training: it sends the epochs' counts to rank 0, which records the
// summary, closes the door, and releases the memory. It waits for peers for a short time.
func (n *Node) Close() error {
	n.TrainersLeave()
	n.halt()
	n.ticking.Wait()
	for _, s := range n.rank.All() {
		s.Finish()
	}
	within(readsTimeout, n.endReads) // the last line counts what storage returned
	n.observer.observe(n.Now())
	if n.report != nil {
		n.report.finish(closeTimeout)
	} else {
		n.cfg.Transport.Post(0, []byte{message.Bye})
	}
	return n.end()
}

// Abandon ends the node in the middle of training, as when another rank has died: trainers continue
// to read from storage, and will send their counts to the next node, so nothing is recorded here.
// Peers and storage may still write to the memory, which is therefore released only with the
// process.
func (n *Node) Abandon() error {
	n.halt()
	n.closeStores()
	return n.closeDoor()
}

// Training reports whether a trainer is connected.
func (n *Node) Training() bool { return n.clients.Trainers() > 0 }

// Trained reports whether a trainer has opened a data set here.
func (n *Node) Trained() bool {
	return slices.ContainsFunc(n.rank.Sets, func(s *training.Set) bool { return s.Store().Opened() })
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

// endReads closes all stores, so that they read nothing more, and waits for their reads.
func (n *Node) endReads() {
	n.closeStores()
	for _, s := range n.rank.Sets {
		s.Store().Wait()
	}
}

func (n *Node) closeStores() {
	for _, s := range n.rank.Sets {
		s.Store().Close()
	}
}

// quiet ends all stores and reports whether all reads into the slab have ended.
func (n *Node) quiet() bool {
	return within(closeTimeout, func() {
		for _, s := range n.rank.Sets {
			s.Store().EndDisks()
		}
		n.endReads()
		for _, s := range n.rank.All() {
			s.AwaitStates()
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

// closeDoor admits no more clients, and ends the connections of all.
func (n *Node) closeDoor() error {
	err := n.door.Close()
	n.clients.HangUp()
	return err
}

// spoilt ends the node: another process has written to the directory of the memory.
func (n *Node) spoilt(why error) {
	forgetSlab(n.cfg.Dir)
	if n.cfg.Spoilt != nil {
		n.cfg.Spoilt(why)
	}
}
