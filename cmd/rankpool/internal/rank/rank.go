// Package rank is the process of "rankpool serve": one rank of the cache, with its options, folder,
// memory and reports.
package rank

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache"
	"rankpool/mpicache/slab"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler"
	"rankpool/slurm"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/storage"
	"rankpool/staging/tier"
	"rankpool/staging/tier/keep"
)

// Serve runs a rank from start to end.
func (o *Options) Serve(ctx context.Context) error {
	messages.Use(o.LogFormat)
	sets, err := o.resolveData()
	if err != nil {
		return err
	}
	job, parent := slurm.Detect(os.Getenv), os.Getppid()
	endWithParent()
	// a launcher that died no longer reads stderr, and the state must still be saved
	signal.Ignore(syscall.SIGPIPE)
	// Register for signals before MPI starts threads: Go ends a process that gets an unhandled
	// signal on a thread of C.
	signals := make(chan os.Signal, 16) // signals that arrive before they are read
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	byHand := o.Session == ""
	joined, err := world.JoinCache(o.MPI, o.World, byHand)
	if err != nil {
		return err
	}
	transport := ranks.NewMux(joined)
	at := world.Find(os.Getenv)
	rank := &process{
		opt: o, job: job, transport: transport, ranksHere: max(1, at.LocalTasks),
		lost: make(chan int, 1), parent: parent, signals: signals,
		readFile: os.ReadFile, roomPatience: roomPatience,
	}
	if o.Together {
		rank.together = newEndTogether(transport)
	}
	rank.pulse = mpicache.NewPulse(transport.Channel(channelPulse), rank.rankTimeout(), rank.lose)
	defer rank.pulse.Stop()
	defer rank.close()
	ctx, end := context.WithCancel(ctx) // for what runs in the background
	defer end()
	if err := rank.open(ctx, sets); err != nil {
		return fmt.Errorf("rank %d: %w", transport.Rank(), err)
	}
	return rank.serveUntilTold()
}

// endWithParent asks the kernel to end this process when its parent dies, so that a killed launcher
// leaves nothing behind.
func endWithParent() {
	// if the kernel cannot do that, the next run cleans up
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
}

// The channels between the ranks.
const (
	channelNode byte = iota // the node's
	channelTold             // see endTogether
	channelIntro
	channelBlocks
	channelListing
	channelPulse
)

// process is the state of a serving process.
type process struct {
	opt       *Options
	job       slurm.Job // that this process is in
	transport *ranks.Mux
	ranksHere int // ranks on this machine
	signals   chan os.Signal
	pulse     *mpicache.Pulse
	lost      chan int     // gets the ranks that have been silent for too long
	parent    int          // the process that started this one
	together  *endTogether // nil unless ranks end together
	dir       string
	life      life
	again     bool // run starts this rank again
	lock      *os.File
	log       *outlet.Outlet
	limit     *storage.RateLimit // this rank's share
	logger    *slog.Logger
	disks     []*tier.Disk
	kept      *keep.Folder // nil: no copies are kept

	readFile func(name string) ([]byte, error) // reads the kernel's files about memory
	// how long this rank waits for its memory after a restart
	roomPatience time.Duration
	sets         []openedSet
	// by rank: the training that it served before the restart
	before     [][]mpicache.Before
	memory     *slab.Slab   // of the rank before this one; nil: the node allocates its own
	slabBytes  atomic.Int64 // of all ranks of this machine, now
	noted      memoryNote   // in the rank's folder; giveBack's once the node runs
	freeBefore int64        // at giveBack's last look

	// nil if there are none, or the first rank of this machine reads them
	gpus *gpuSampler
	// the node whose statistics are shown; nil: it does not serve yet
	stats   atomic.Pointer[mpicache.Node]
	metrics []io.Closer
	node    *mpicache.Node
	told    bool // the door was asked to end, or training ended after a signal
}

// An openedSet is a data set as this rank sees it.
type openedSet struct {
	dataSet
	manifest *dataset.Manifest
	fetcher  *storage.Fetcher // reads its samples
	kept     *keep.Store      // the copies of them that outlive the rank; nil: none
}

func (r *process) open(ctx context.Context, sets []dataSet) error {
	if err := r.openFolder(); err != nil {
		return err
	}
	r.logger, r.limit = r.newLogger(), r.opt.storage.limit(r.transport.Size())
	opened := make(chan struct{})
	defer close(opened)
	go r.liveUntil(opened)
	world.WarnTask(r.transport.Rank(), r.opt.DropState())
	if err := r.opt.storage.writeLimits(r.dir, r.transport.Size()); err != nil {
		return err
	}
	cfg := r.config()
	if err := r.openLog(&cfg); err != nil {
		return err
	}
	for i, set := range sets {
		data, err := r.openData(ctx, i, set)
		if err != nil {
			return err
		}
		cfg.Data = append(cfg.Data, data)
	}
	plan, err := r.planMemory(ctx, &cfg)
	if err != nil {
		return err
	}
	cfg.SlabBytes, cfg.Memory, cfg.Before = plan.SlabBytes, r.memory, r.before
	r.slabBytes.Store(plan.SlabBytes * int64(r.ranksHere))
	if r.transport.Rank() == 0 {
		r.logger.Info("memory of each rank", "slab", memory.Text(plan.SlabBytes), "cache",
			memory.Text(plan.CacheBytes), "window", memory.Text(plan.WindowBytes))
	}
	if err := r.openTiers(cfg.Data); err != nil {
		return err
	}
	if err := r.openPackages(cfg.Data); err != nil {
		return err
	}
	tidyHeap() // the manifests were read whole
	if err := r.startObserving(ctx); err != nil {
		return err
	}
	r.node, err = mpicache.NewNode(cfg)
	if err != nil {
		return err
	}
	if kept, of := r.node.Recovered(); r.memory != nil {
		messages.Notice(r.logger, "the cache continues with the memory that it had",
			"samples", fmt.Sprintf("kept %d of %d", kept, of))
	}
	r.stats.Store(r.node)
	return os.WriteFile(filepath.Join(r.dir, session.ReadyName), nil, 0o600)
}

// config returns what is known of the node before its data sets are open.
func (r *process) config() mpicache.Config {
	cfg := mpicache.Config{
		Transport: r.transport.Channel(channelNode),
		System:    r.opt.System, Policy: r.opt.Policy, Scorer: r.opt.scorer,
		Sampler: r.opt.sampler, Options: r.opt.values, PeerTimeout: r.opt.peerTimeout,
		Pulse: r.pulse, Spoilt: r.endSpoilt, Dir: r.dir,
		StatePath: r.opt.State, StateOptional: r.opt.stateAny, Session: r.opt.Session, Log: r.logger,
		Record:    func(any) {},
		NodeEvery: r.opt.logEvery, Observe: r.observe, Room: r.room, GiveBack: r.giveBack,
		Tidy: tidyHeap, Benefit: mpicache.Benefit(slices.Index(mpicache.Benefits, r.opt.benefit)),
		GiveUnused: r.opt.Memory == memory.Auto,
	}
	if r.opt.Assign == "sampler" {
		cfg.Assignment = scheduler.AssignSampler
	}
	return cfg
}

// unlessAgain returns an error that keeps a cache from starting. If the cache is only restarted, it
// logs the error with a message instead, and returns nil: training must not end because a file that
// nobody needs can no longer be written.
func (r *process) unlessAgain(message string, err error) error {
	if err == nil || !r.again {
		return err
	}
	r.logger.Warn(message, "error", err)
	return nil
}

func (r *process) openLog(cfg *mpicache.Config) error {
	if r.opt.Log == "" || r.transport.Rank() != 0 {
		return nil
	}
	log, err := openRunLog(r.opt.Log, r.logger, r.again)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	r.log, cfg.Launch = log, r.life.launch
	cfg.Record = func(event any) {
		line, err := json.Marshal(event)
		if err != nil {
			r.logger.Error("a line of the run log is lost", "error", err)
			return
		}
		_, _ = log.Write(append(line, '\n')) // the outlet writes or counts it
	}
	return nil
}

// openData opens a data set: its manifest, its fetcher, and the index that clients map.
func (r *process) openData(ctx context.Context, i int, set dataSet) (mpicache.DataSet, error) {
	m, index, err := r.openIndex(i, func() (*dataset.Manifest, error) {
		return index.Open(ctx, set.Path,
			index.OpenOptions{
				ScanOptions: index.ScanOptions{Notice: func(msg string) { r.logger.Warn(msg) }},
				Log:         func(msg string) { r.logger.Warn(msg) },
			})
	})
	if err != nil {
		return mpicache.DataSet{}, err
	}
	if _, err := os.Stat(m.Root()); err != nil {
		return mpicache.DataSet{}, fmt.Errorf("data set %s cannot be read: %w", set.Name, err)
	}
	targets := &ownTargets{manifest: m, rank: r.transport.Rank(), ranks: r.transport.Size()}
	options := r.opt.storage.fetchOptions(r.limit, r.logger)
	options.TargetOf = targets.of
	fetcher := storage.NewFetcher(m, options)
	go targets.find(ctx, r.logger)
	r.sets = append(r.sets, openedSet{dataSet: set, manifest: m, fetcher: fetcher})
	id := m.Identity()
	return mpicache.DataSet{
		Name: set.Name, Samples: m.Len(), Identity: id.Digest.String(), Times: id.Times.String(),
		Root: m.Root(), IndexPath: index,
		Size: m.Size, Label: func(id scheduler.SampleID) int { return m.Label(id) },
		Storage: fetcher,
	}, nil
}

// close releases everything. Unless told is set, the folder stays: it holds what the rank needs to
// resume after a restart.
func (r *process) close() {
	if r.node != nil {
		_ = r.node.Close() // an error before this one is being reported
	}
	r.endMetrics()
	for _, d := range r.disks {
		d.End()
	}
	r.closeKept()
	for _, set := range r.sets {
		set.fetcher.Close()
		logStorage(r.logger, set.Name, set.fetcher.Stats())
	}
	if r.log != nil && !r.log.Close(logPatience) {
		r.logger.Warn("the end of the run log is lost: storage does not accept it", "path",
			r.opt.Log)
	}
	if r.told {
		_ = os.RemoveAll(r.dir) // the launcher removes the rest
	}
	if r.lock != nil {
		_ = r.lock.Close() // ends the lock
	}
}
