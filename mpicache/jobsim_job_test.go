package mpicache

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/door"
	"rankpool/mpicache/liveness"
	"rankpool/mpicache/message"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// simConfig describes a job, as it follows from a seed.
type simConfig struct {
	ranks, perRank, idle int // ranks, trainers of each, and ranks without trainers
	first                int // rank of trainer 0, modulo ranks; counted from it, the last have none
	samples, epochs      int
	sampler              string
	partition            int64 // bytes of each rank's
	nan                  bool  // some losses are NaN
	saves                bool  // there is a state file, and checkpoints
	window               int   // pieces of a sample, which neighbours share; 0: each is one
	cold                 bool  // memory is not taken back
	faults               []simFault
	ends                 string // part of a sentence that training may end with; "": none
}

// simGlobalBatch is how many samples all trainers, 1, 2, 3, 4 or 6, draw together.
const simGlobalBatch = 12

const simIdentity = "the data set's digest"

func (c *simConfig) world() int { return (c.ranks - c.idle) * c.perRank }

// bookBytes is the memory that a sampler counts with which depends on it.
func (c *simConfig) bookBytes() int64 { return c.partition * int64(c.ranks) }

// rankOf returns the rank of a trainer at the start.
func (c *simConfig) rankOf(trainer int) int { return (c.first + trainer/c.perRank) % c.ranks }

func (c *simConfig) batch() int { return simGlobalBatch / c.world() }

func (c *simConfig) weighted() bool {
	return c.sampler == "pads" || c.sampler == "weighted-once" || c.sampler == draw.Thrifty
}

// loss returns the loss that training reports for a draw.
func (c *simConfig) loss(epoch, batch int, id uint32) float32 {
	x := (uint64(id)*0x9e3779b97f4a7c15 + uint64(epoch)<<20 + uint64(batch)) * 0xbf58476d1ce4e5b9
	x ^= x >> 31
	if c.nan && x%5 == 0 {
		return float32(math.NaN())
	}
	return float32(x>>40%1000)/1000 + 0.01
}

func newSimConfig(clock *simClock) simConfig {
	shapes := [][3]int{ // ranks, trainers of each, ranks without
		{1, 1, 0},
		{1, 2, 0},
		{2, 1, 0},
		{2, 2, 0},
		{2, 3, 0},
		{3, 1, 0},
		{3, 2, 0},
		{4, 1, 0},
		{2, 1, 1},
		{3, 1, 1},
		{3, 2, 1},
	}
	s := shapes[clock.rng.IntN(len(shapes))]
	c := simConfig{
		ranks: s[0], perRank: s[1], idle: s[2],
		samples: simGlobalBatch * (5 + clock.rng.IntN(8)), epochs: 2 + clock.rng.IntN(3),
		sampler: []string{"pads", "weighted-once", "pads", "uniform", "torch"}[clock.rng.IntN(5)],
		nan:     clock.chance(2), saves: clock.chance(2), cold: clock.chance(3),
		first: clock.rng.IntN(12),
	}
	c.partition = int64(c.samples) * 128 / int64(c.ranks) * int64(1+clock.rng.IntN(4)) / 4
	c.faults = newSimFaults(clock, &c)
	return c
}

// simJob is a job: a launcher, a cache, trainers, and what outlives them.
type simJob struct {
	clock *simClock
	cfg   simConfig
	plant string // a fault that is planted in the product; "": none
	dir   string

	launcher *simProcess
	keeper   *liveness.Keeper
	begun    time.Duration
	machines []*simMachine
	ranks    *simRanks // nil: the cache is away
	opened   []*Node   // all that were ever opened

	identity string                 // of the data set that ranks serve
	bad      map[draw.SampleID]bool // samples that have changed
	shifted  []bool                 // by machine: its folder has other samples
	stall    time.Duration          // until when storage does not answer
	slow     time.Duration          // until when the network is slow

	trainers   []*simTrainer
	reference  [][][]uint32 // by epoch and batch: what an undisturbed training gets
	steps      int          // global batches that were trained
	starts     int          // of the cache
	requeues   int
	closing    bool // all trainers have left
	over       bool
	why        string // training ended with an error
	violation  string
	checkpoint *protocol.Checkpoint
	uncounted  bool          // counts were lost with those who knew them
	served     map[place]int // by global batch: what its trainers were served
	begins     int           // the epoch in which training began after the last requeue
}

// simulate runs the job of a seed and returns it: its violation is what is wrong with it, "" for
// nothing, and its trace has the hash of all that happened.
func simulate(seed uint64, plant string, keep bool) *simJob {
	return simulateWith(seed, plant, keep, func(*simConfig) {})
}

// simulateWith is simulate with a job that change has changed.
func simulateWith(seed uint64, plant string, keep bool, change func(*simConfig)) *simJob {
	clock := newSimClock(seed, keep)
	j := &simJob{
		clock: clock, plant: plant, launcher: &simProcess{name: "launcher"},
		identity: simIdentity, bad: map[draw.SampleID]bool{}, served: map[place]int{},
	}
	j.cfg = newSimConfig(clock)
	change(&j.cfg)
	// always of the same length, since frames have paths in them
	j.dir = filepath.Join(simFolder(), fmt.Sprintf("rankpool-job-%07d-%07d", simPID, simJobs.Add(1)))
	clock.trace.differs = strings.NewReplacer(
		j.dir, "FOLDER", fmt.Sprint("process ", simPID), "process PID")
	defer j.clean()
	j.reference = j.cfg.stream()
	clock.trace.note("job", fmt.Sprintf("%+v", j.cfg))
	j.start()
	j.run()
	return j
}

// simJobs numbers the jobs of this process.
var simJobs atomic.Int64

// simFolder returns a folder in memory, if there is one: jobs write many small files.
func simFolder() string {
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/dev/shm"); err == nil {
			return "/dev/shm"
		}
	}
	return os.TempDir()
}

// simPatience is how long a job may take after its last fault.
const simPatience = 5 * time.Minute

func (j *simJob) run() {
	last, steps := time.Duration(0), 0
	for !j.over && j.violation == "" && j.clock.step() {
		if j.steps != steps {
			last, steps = j.clock.now, j.steps
		}
		if j.clock.now > last+simPatience {
			j.violate("nothing has been trained for %v", simPatience)
		}
	}
}

func (j *simJob) clean() {
	for _, n := range j.opened {
		_ = n.slab.Close()
	}
	for _, m := range j.machines {
		if m.memory >= 0 {
			_ = unix.Close(m.memory)
		}
	}
	_ = os.RemoveAll(j.dir)
}

func (j *simJob) violate(format string, args ...any) {
	if j.violation == "" {
		j.violation = fmt.Sprintf(format, args...)
		j.clock.trace.note("oracle", j.violation)
	}
}

// stream returns the stream of an undisturbed training, by the rules and not by a rank.
func (c *simConfig) stream() [][][]uint32 {
	if c.listed() {
		return c.listedStream()
	}
	sampler, err := draw.NewSampler(draw.SamplerConfig{
		Name: c.sampler, Samples: c.samples, Seed: 1, BatchSize: simGlobalBatch, World: 1,
		Room: systems.ShareOf(c.bookBytes(), c.samples, sampleSize),
	})
	if err != nil {
		panic(err)
	}
	cfg := plan.Config{
		Sampler: sampler, BatchSize: simGlobalBatch, World: []int32{0}, Ranks: 1,
	}
	var ledger *protocol.Ledger
	var scores []float32
	if c.weighted() {
		scorer, err := protocol.NewScorer(protocol.DefaultScorer(c.sampler))
		if err != nil {
			panic(err)
		}
		ledger = protocol.NewLedger(
			scorer, protocol.EqualScores(c.samples, scorer.Initial(simGlobalBatch)))
		scores = ledger.Take()
	}
	var all [][][]uint32
	for epoch := range c.epochs {
		plan := plan.New(cfg, epoch, scores)
		if r, resumes := sampler.(draw.Resumer); resumes {
			if err := r.Resume(plan.After()); err != nil {
				panic(err)
			}
		}
		if ledger != nil {
			ledger.Open(plan)
		}
		var batches [][]uint32
		taken := false
		for b := range plan.Batches() {
			var ids []uint32
			var losses []float32
			for _, id := range plan.Part(b, 0) {
				ids = append(ids, uint32(id))
				losses = append(losses, c.loss(epoch, b, uint32(id)))
			}
			slices.Sort(ids)
			batches = append(batches, ids)
			if ledger == nil {
				continue
			}
			if err := ledger.Report(protocol.AllTrainers, epoch, b, losses, nil); err != nil {
				panic(err)
			}
			if ledger.Fold(nil) && !taken {
				scores, taken = ledger.Take(), true
			}
		}
		all = append(all, batches)
	}
	return all
}

// start starts a job, or starts it again after it was requeued.
func (j *simJob) start() {
	j.machines = nil
	for n := range j.cfg.ranks {
		m := &simMachine{folder: filepath.Join(j.dir, fmt.Sprintf("%d-r%d", j.steps, n)), memory: -1}
		if err := os.MkdirAll(m.folder, 0o700); err != nil {
			panic(err)
		}
		j.machines = append(j.machines, m)
	}
	j.shifted = make([]bool, j.cfg.ranks)
	if j.planted("F2 a node has different files") {
		j.shifted[j.cfg.ranks-1] = true
	}
	here := make([]int, j.cfg.ranks)
	for n := range here {
		here[n] = n
	}
	j.keeper = liveness.NewKeeper(liveness.Options{
		Ranks: here, StartWithin: 10 * time.Second, AnswerWithin: simAnswerWithin,
		EndWithin: 2 * time.Second, Again: true,
	})
	j.begun = j.clock.now
	j.every(liveness.Every(simAnswerWithin), j.launcher, j.look)
	j.startCache()
	j.trainers = nil
}

// startTrainers starts training, once the ranks are ready.
func (j *simJob) startTrainers() {
	epoch, batch := 0, 0
	if j.checkpoint != nil {
		epoch, batch = j.checkpoint.Epoch, j.checkpoint.Batch
	}
	j.begins = epoch
	if batch > 0 {
		j.begins++
	}
	for n := range j.cfg.world() {
		t := &simTrainer{
			simProcess: &simProcess{name: fmt.Sprint("trainer ", n)}, job: j, number: n,
			rank: j.cfg.rankOf(n), process: j.clock.rng.Uint64(), retry: simRetry,
		}
		t.training = protocol.Training{Life: j.clock.rng.Uint64(), Checkpoint: j.checkpoint}
		if j.checkpoint != nil {
			t.training.Turn = 1
		}
		j.trainers = append(j.trainers, t)
		j.clock.after(j.clock.upTo(50*time.Millisecond), t.simProcess, "begins", func() {
			t.begin(epoch, batch)
		})
		j.every(50*time.Millisecond, t.simProcess, t.tick)
	}
}

// The launcher

func (j *simJob) drive(e liveness.Event) {
	if j.over {
		return
	}
	for _, c := range j.keeper.Step(j.clock.now-j.begun, e) {
		switch c := c.(type) {
		case liveness.Start:
			if !j.planted("the cache is not restarted") {
				j.startCache()
			}
		case liveness.End:
			if ranks := j.ranks; ranks != nil {
				j.clock.after(j.clock.upTo(100*time.Millisecond), j.launcher, "ends the ranks",
					func() { ranks.end("it was killed") })
			}
		case liveness.Say:
			j.clock.trace.note("launcher", c.Text)
		case liveness.Fail:
			// it was killed before it served: training is not started
			j.over = true
		}
	}
	if _, ready := e.(liveness.Ready); ready && j.trainers == nil {
		j.startTrainers()
	}
}

func (j *simJob) look() {
	if j.ranks != nil {
		for at, r := range j.ranks.all {
			if !r.dead && !r.stopped || j.planted("F9 waits have no time limit") ||
				j.planted("a stopped rank is not killed") {
				j.drive(liveness.Answered{At: at})
			}
		}
	}
	j.drive(liveness.Tick{})
}

func (j *simJob) startCache() {
	machines := j.machines
	j.clock.after(0, j.launcher, "starts the cache", func() { j.drive(liveness.Started{}) })
	j.clock.after(j.clock.upTo(200*time.Millisecond), j.launcher, "the ranks have met", func() {
		if j.ranks != nil || &machines[0] != &j.machines[0] {
			return
		}
		j.drive(liveness.Met{})
		j.starts++
		j.ranks = j.newRanks()
	})
}

// Training

// arrived continues with the global batch, when all trainers have their part of it.
func (j *simJob) arrived() {
	for _, t := range j.trainers {
		if !t.steps || t.saves {
			return
		}
	}
	first := j.trainers[0]
	var ids []uint32
	served := 0
	for _, t := range j.trainers {
		if t.epoch != first.epoch || t.batch != first.batch {
			j.violate("%s is in epoch %d, batch %d, and %s in epoch %d, batch %d", t.name, t.epoch,
				t.batch, first.name, first.epoch, first.batch)
			return
		}
		ids = append(ids, t.parts[t.batch]...)
		served += len(t.job.cfg.rows(t.parts[t.batch]))
	}
	slices.Sort(ids)
	if want := j.reference[first.epoch]; first.batch >= len(want) ||
		!slices.Equal(ids, want[first.batch]) || len(first.parts) != len(want) {
		j.violate("epoch %d, batch %d of %d is %v, and not %v", first.epoch, first.batch,
			len(first.parts), ids, want[min(first.batch, len(want)-1)])
		return
	}
	j.served[place{first.epoch, first.batch}] = served
	j.steps++
	j.clock.trace.note("training", "has a batch", first.epoch, first.batch)
	epoch, batch := first.epoch, first.batch+1
	left := len(j.trainers)
	for _, t := range j.trainers {
		t.steps, t.trains = false, true
		j.clock.after(j.clock.upTo(8*time.Millisecond), t.simProcess, "", func() {
			t.trains = false
			t.trained()
			if left--; left == 0 {
				j.between(place{epoch, batch})
			}
			t.advance()
		})
	}
}

// between does what is due between two global batches, before the one at a place.
func (j *simJob) between(at place) {
	j.saveCheckpoint(at)
	for i := range j.cfg.faults {
		f := &j.cfg.faults[i]
		switch {
		case f.step != j.steps:
		case f.delay == simAtOnce:
			f.do(j)
		default:
			j.clock.after(j.clock.upTo(f.delay), nil, "", func() {
				if !j.over && !j.closing {
					j.clock.trace.note("fault", f.name)
					f.do(j)
				}
			})
		}
	}
}

// saveCheckpoint makes all trainers make a checkpoint now and then.
func (j *simJob) saveCheckpoint(at place) {
	if !j.cfg.saves || at.batch == len(j.reference[at.epoch]) || !j.clock.chance(6) {
		return
	}
	state := protocol.Digest("")
	for _, t := range j.trainers {
		t.save(func(a door.Saved) {
			if a.State != "" && state != "" && a.State != state {
				j.violate("one checkpoint has the states %.8s and %.8s", state, a.State)
			}
			state = cmp.Or(a.State, state)
			// the first trainer writes the checkpoint, as is usual
			if t.number == 0 && (a.State != "" || !j.cfg.weighted()) {
				j.clock.trace.note("training", "has a checkpoint", at.epoch, at.batch)
				j.checkpoint = &protocol.Checkpoint{Epoch: at.epoch, Batch: at.batch, State: a.State}
			}
		})
	}
}

// fail ends the job: training has ended with an error.
func (j *simJob) fail(t *simTrainer, why string) {
	j.clock.trace.note(t.name, "ends: "+why)
	j.why = why
	j.over = true
	if allowed := j.allowed(why); !allowed {
		j.violate("%s ends: %s", t.name, why)
	}
}

// left ends the cache, when the last trainer has left.
func (j *simJob) left() {
	for _, t := range j.trainers {
		if !t.over {
			return
		}
	}
	j.closing = true
	j.drive(liveness.Over{})
	// let what is under way end: silent peers are given up, storage answers
	wait := 2*time.Second + max(0, j.stall-j.clock.now) + max(0, j.slow-j.clock.now)
	j.clock.after(wait, nil, "", j.finish)
}

// finish ends the ranks as their Close does, and then the job.
func (j *simJob) finish() {
	if j.ranks == nil || slices.ContainsFunc(j.ranks.all, func(r *simRank) bool {
		return r.dead || r.stopped || !r.serves
	}) {
		j.over = true // it died at the very end
		return
	}
	for _, r := range j.ranks.all {
		j.clock.after(0, r.simProcess, "closes", func() {
			r.node.rank.Sets[0].Find("").Finishing()
			if r.number > 0 {
				r.transport.Post(0, []byte{message.Bye})
			}
		})
	}
	j.clock.after(10*time.Second, nil, "", j.conclude)
}

// conclude checks what a job leaves: correct counts, and nothing else.
func (j *simJob) conclude() {
	j.over = true
	if j.ranks == nil || j.ranks.all[0].dead {
		return
	}
	for _, r := range j.ranks.all {
		j.leftovers(r)
	}
	for _, until := range j.ranks.cut {
		if until > j.clock.now-10*time.Second {
			return // counts may not have come
		}
	}
	report := j.ranks.all[0].node.report
	if report.byes != j.cfg.ranks-1 {
		j.violate("%d of %d ranks have said that they have counted", report.byes, j.cfg.ranks-1)
		return
	}
	if j.cfg.ranks == 1 || report.byes == j.cfg.ranks-1 {
		report.finish(time.Hour)
	}
	if j.uncounted {
		return
	}
	for epoch := j.begins; epoch < j.cfg.epochs; epoch++ {
		want := int64(0)
		for b := range j.reference[epoch] {
			want += int64(j.served[place{epoch, b}])
		}
		if c := report.recorded["0"][epoch]; int64(c.Draws()) != want {
			j.violate("epoch %d counts %v draws, and not %d: %+v", epoch, c.Draws(), want, c)
		}
	}
}

// leftovers reports what is left of a training in a rank that nobody uses any more.
func (j *simJob) leftovers(r *simRank) {
	set := r.node.rank.Sets[0]
	s := set.Store()
	if gets, others := set.Pending(); gets+others > 0 {
		j.violate("%s: %d requests are left", r.name, gets+others)
	}
	if n := r.node.clients.Len(); n > 0 {
		j.violate("%s: %d connections are left", r.name, n)
	}
	if n := s.Questions(); n > 0 {
		j.violate("%s: %d questions are left", r.name, n)
	}
	if _, used := r.node.memory.Size(); used != s.UsedBytes() {
		j.violate("%s: %d bytes of its memory are used, and samples have %d", r.name, used,
			s.UsedBytes())
	}
	if bytes := s.WindowBytes(); bytes < 0 {
		j.violate("%s: %d bytes in the window", r.name, bytes)
	}
}
