// Package rank is the process of "rankpool serve": one rank of the cache, with its options, folder,
// memory and reports.
package rank

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/slurm"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/storage"
	"rankpool/staging/tier/keep"
)

// Serve runs a rank from start to end.
func (o *Options) Serve(ctx context.Context) error {
	messages.Use(o.LogFormat)
	parent := os.Getppid()
	endWithParent()
	// a launcher that died no longer reads stderr, and the state must still be saved
	signal.Ignore(syscall.SIGPIPE)
	// Register for signals before MPI starts threads: Go ends a process that gets an unhandled
	// signal on a thread of C.
	signals := make(chan os.Signal, 16) // signals that arrive before they are read
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	joined, err := world.JoinCache(o.World)
	if err != nil {
		return err
	}
	transport := ranks.NewMux(joined)
	rank := newProcess(o, transport)
	rank.end.signals = signals
	rank.end.parent = parent
	rank.watch = ranks.NewWatch(transport.Channel(channelWatch),
		ranks.WatchOptions{Bound: rank.rankTimeout(), Lost: rank.end.lose})
	rank.watch.Start()
	defer rank.watch.Stop()
	defer rank.close()
	ctx, end := context.WithCancel(ctx) // for what runs in the background
	defer end()
	if err := rank.open(ctx); err != nil {
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
	channelWatch
)

// process is a serving process.
type process struct {
	opt       *Options
	job       slurm.Job // that this process is in
	transport *ranks.Mux
	watch     *ranks.Watch
	logger    *slog.Logger
	limit     *storage.RateLimit // this rank's share
	sets      []openedSet
	node      *mpicache.Node

	folder   ownFolder
	memory   memoryUse
	tiers    tiers
	observed observation
	end      shutdown
}

func newProcess(o *Options, t *ranks.Mux) *process {
	job := slurm.Detect(os.Getenv)
	r := &process{opt: o, job: job, transport: t, folder: ownFolder{opt: o, job: job}}
	r.memory.ranksHere = max(1, world.Find(os.Getenv).LocalTasks)
	r.memory.readFile, r.memory.patience = os.ReadFile, roomPatience
	r.end.lost = make(chan int, 1)
	if o.Together {
		r.end.together = newEndTogether(t)
	}
	return r
}

// tellParts gives the parts what they need of the rank.
func (r *process) tellParts() {
	rank, ranks := r.transport.Rank(), r.transport.Size()
	m, t, o := &r.memory, &r.tiers, &r.observed
	m.opt, m.folder, m.logger, m.rank, m.ranks = r.opt, &r.folder, r.logger, rank, ranks
	t.opt, t.logger, t.rank, t.ranks = r.opt, r.logger, rank, ranks
	o.opt, o.job, o.folder, o.logger, o.rank = r.opt, r.job, &r.folder, r.logger, rank
}

// An openedSet is a data set as this rank sees it.
type openedSet struct {
	dataSet
	manifest *dataset.Manifest
	fetcher  *storage.Fetcher // reads its samples
	kept     *keep.Store      // the copies of them that outlive the rank; nil: none
}

func (r *process) open(ctx context.Context) error {
	if err := r.folder.open(r.transport.Rank()); err != nil {
		return err
	}
	r.logger, r.limit = r.newLogger(), r.opt.Storage.limit(r.transport.Size())
	r.tellParts()
	opened := make(chan struct{})
	defer close(opened)
	go r.live(ctx, opened)
	if err := r.opt.Storage.writeLimits(r.folder.dir, r.transport.Size()); err != nil {
		return err
	}
	cfg := r.config()
	if err := r.openLog(&cfg); err != nil {
		return err
	}
	for i, named := range r.opt.Data { // NAME=PATH
		name, path, _ := strings.Cut(named, "=")
		data, err := r.openData(ctx, i, dataSet{name, path})
		if err != nil {
			return err
		}
		cfg.Data = append(cfg.Data, data)
	}
	plan, err := r.planMemory(ctx, &cfg)
	if err != nil {
		return err
	}
	cfg.SlabBytes, cfg.Memory = plan.SlabBytes, r.memory.slab
	r.memory.slabBytes.Store(plan.SlabBytes * int64(r.memory.ranksHere))
	if r.transport.Rank() == 0 {
		r.logger.Info("memory of each rank", "slab", memory.Text(plan.SlabBytes), "cache",
			memory.Text(plan.CacheBytes), "window", memory.Text(plan.WindowBytes))
	}
	if err := r.tiers.open(cfg.Data, r.sets); err != nil {
		return err
	}
	if err := r.tiers.openPackages(cfg.Data); err != nil {
		return err
	}
	tidyHeap() // the manifests were read whole
	if err := r.observed.start(ctx); err != nil {
		return err
	}
	r.node, err = mpicache.NewNode(cfg)
	if err != nil {
		return err
	}
	if kept, of := r.node.Recovered(); r.memory.slab != nil {
		messages.Notice(r.logger, "the cache continues with the memory that it had",
			"samples", fmt.Sprintf("kept %d of %d", kept, of))
	}
	r.observed.node.Store(r.node)
	return os.WriteFile(filepath.Join(r.folder.dir, session.ReadyName), nil, 0o600)
}

// config returns what is known of the node before its data sets are open.
func (r *process) config() mpicache.Config {
	cfg := mpicache.Config{
		Transport: r.transport.Channel(channelNode),
		System:    r.opt.System.Name, Policy: r.opt.System.Policy, Scorer: r.opt.System.Scorer,
		Sampler: r.opt.System.Sampler, Options: r.opt.System.Options, PeerTimeout: r.opt.PeerTimeout,
		Watch: r.watch, Spoilt: r.endSpoilt, Dir: r.folder.dir,
		StatePath: r.opt.State, StateOptional: r.opt.StateAny, Session: r.opt.Session, Log: r.logger,
		Record:    func(any) {},
		NodeEvery: r.opt.LogEvery, Observe: r.observe, Room: r.memory.room, GiveBack: r.memory.giveBack,
		Tidy: tidyHeap, Benefit: mpicache.Benefit(slices.Index(mpicache.Benefits, r.opt.Benefit)),
	}
	if r.opt.System.Assign == "sampler" {
		cfg.Assignment = plan.AssignSampler
	}
	return cfg
}

func (r *process) openLog(cfg *mpicache.Config) error {
	if r.opt.Log == "" || r.transport.Rank() != 0 {
		return nil
	}
	log, err := openRunLog(r.opt.Log, r.logger, r.folder.again)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	if log == nil {
		return nil
	}
	r.observed.log, cfg.Launch = log, r.opt.Launch
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
				ScanOptions: r.opt.Choice.Scan(nil, func(msg string) { r.logger.Warn(msg) }),
				Log:         func(msg string) { r.logger.Warn(msg) },
			})
	})
	if err != nil {
		return mpicache.DataSet{}, err
	}
	if _, err := os.Stat(m.Root()); err != nil {
		return mpicache.DataSet{}, fmt.Errorf("data set %s cannot be read: %w", set.Name, err)
	}
	opened := mpicache.DataSet{
		Name: set.Name, Samples: m.Samples(), Pieces: piecesOf(m), Root: m.Root(), IndexPath: index,
		Size: m.Size, Label: func(id draw.SampleID) int { return m.Label(id) },
	}
	options := storage.FetchOptions{Limit: r.limit, Log: func(msg string) { r.logger.Warn(msg) }}
	if opened.Pieces == nil { // neighbouring pieces may be on any target
		targets := &ownTargets{manifest: m, rank: r.transport.Rank(), ranks: r.transport.Size()}
		go targets.find(ctx, r.logger)
		options.TargetOf = targets.of
	}
	fetcher := storage.NewFetcher(m, options)
	r.sets = append(r.sets, openedSet{dataSet: set, manifest: m, fetcher: fetcher})
	id := m.Identity()
	opened.Identity, opened.Times = id.Digest.String(), id.Times.String()
	opened.Storage = fetcher
	return opened, nil
}

// piecesOf returns what the samples of a manifest are made of, nil if each is one piece.
func piecesOf(m *dataset.Manifest) *plan.Pieces {
	p := m.Pieces()
	if p == nil {
		return nil
	}
	return plan.NewPieces(plan.Pieces{
		Samples: p.Samples, Count: m.Len(), Block: p.Block, Windows: p.Windows, Size: m.Size,
	})
}

// close releases everything. Unless told is set, the folder stays: it holds what the rank needs to
// resume after a restart.
func (r *process) close() {
	if r.node != nil {
		_ = r.node.Close() // an error before this one is being reported
	}
	r.observed.endMetrics()
	r.tiers.close(r.sets)
	for _, set := range r.sets {
		set.fetcher.Close()
		logStorage(r.logger, set.Name, set.fetcher.Stats())
	}
	if log := r.observed.log; log != nil && !log.Close(logPatience) {
		r.logger.Warn("the end of the run log is lost: storage does not accept it", "path",
			r.opt.Log)
	}
	if r.end.told {
		_ = os.RemoveAll(r.folder.dir) // the launcher removes the rest
	}
	if lock := r.folder.lock; lock != nil {
		_ = lock.Close() // ends the lock
	}
}
