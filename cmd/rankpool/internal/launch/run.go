// Package launch starts a run's cache and its training command, watches both, and starts a dead
// cache again ("rankpool run"); join is one task of its training step.
package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/progress"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/summary"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/liveness"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
	"rankpool/staging/index"
)

// Options are the flags of run.
type Options struct {
	cache           rank.CacheOptions
	ranks           int // 0 until it is decided
	trainersPerRank int // of each training
	trainings       int
	runtimeDir      string
	progressSeconds float64
	startTimeout    time.Duration
	library         transport.Library // of the ranks; none for one rank
	requeue         string            // the name of the signal; "": the job is not requeued
	requeueOn       syscall.Signal    // the same
	self            string            // this program
	launched        string            // the name of this launch, passed to its ranks
	indexes         session.Indexes   // of the data sets as they were when the run began
	served          []servedSet       // the same data sets
	Command         []string          // the training command
}

// Register adds the flags of run, those that most runs need first.
func (o *Options) Register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	o.cache.RegisterMain(flags)
	flags.StringVar(&o.requeue, "requeue", "", "requeue the job if its time ends before training "+
		"does: at this signal, USR1 or USR2, or at SIGTERM")
	flags.Lookup("requeue").NoOptDefVal = requeueSignal
	flags.IntVar(&o.ranks, "ranks", 0,
		"ranks of the cache (default: 1; in a Slurm allocation one per node)")
	flags.IntVar(&o.trainersPerRank, "trainers-per-rank", 1,
		"training processes per rank; in a batch script srun's own flags decide")
	flags.IntVar(&o.trainings, "trainings", 1, "trainings that share the cache, each with its own "+
		"RANKPOOL_TRAINING and share of the GPUs (docs/jobs.md)")
	rare := o.cache.RegisterRest(flags)
	flags.StringVar(&o.runtimeDir, "runtime-dir", "", "folder for sockets and other files of "+
		"this run (default /dev/shm, else $TMPDIR, else /tmp)")
	rare.Float64Var(&o.progressSeconds, "progress", 30, "")
	rare.Lookup("progress").Hidden = true
	flags.AddFlag(rare.Lookup("progress")) // scripts of earlier versions have it
	rare.DurationVar(&o.startTimeout, "start-timeout", 2*time.Minute, "")
}

// check validates the flags and determines the number of ranks.
func (o *Options) check(job slurm.Job, f form, at world.Place) error {
	if err := o.checkLaunch(job, f, at); err != nil {
		return err
	}
	if err := o.checkTrainings(f); err != nil {
		return err
	}
	switch {
	case len(o.Command) == 0:
		return exit.NoCommand("rankpool run --data DIR -- python train.py")
	case o.trainersPerRank < 1:
		return exit.Usagef("--trainers-per-rank must be at least 1, not %d", o.trainersPerRank)
	case f == formSlurm && o.ranks != 0 && o.ranks != job.Nodes:
		return exit.Usagef(
			"--ranks: the allocation has %d nodes, and each gets one rank; leave --ranks out",
			job.Nodes)
	case f == formSlurm && o.trainersPerRank != 1:
		return exit.Usagef("--trainers-per-rank: in a batch script of Slurm, srun starts the "+
			"training command: use #SBATCH --ntasks-per-node=%d", o.trainersPerRank)
	case f == formTask && o.ranks != 0 && o.ranks != at.Tasks:
		return world.OnceForAll(at, exit.Usagef(
			"--ranks: %s started %d tasks, and each is one rank; leave --ranks out", at.By, at.Tasks))
	}
	switch f {
	case formSlurm:
		o.ranks = max(1, job.Nodes)
	case formTask:
		o.ranks = at.Tasks
	case formLocal:
		o.ranks = max(1, o.ranks)
	}
	o.cache.Trainers.PerRank = o.trainings *
		max(o.trainersPerRank, memory.TasksANode(job, f == formSlurm))
	if err := o.checkRequeue(); err != nil {
		return err
	}
	if err := o.cache.Check(); err != nil {
		return err
	}
	switch { // set by --tune, which is checked now
	case o.startTimeout <= 0:
		return exit.Usagef("--tune start-timeout must be a positive time, not %v", o.startTimeout)
	case !(o.progressSeconds >= 0):
		return exit.Usagef("--tune progress must be at least 0 seconds, not %v", o.progressSeconds)
	}
	return nil
}

// findLibrary decides which MPI library the ranks load; one rank needs none.
func (o *Options) findLibrary(ranks int) (err error) {
	if ranks <= 1 || o.library.Path != "" {
		return nil
	}
	if o.library, err = world.Ask(); err != nil {
		return fmt.Errorf("%d ranks need MPI, and %w", ranks, err)
	}
	o.logVerbose("the MPI library is " + world.About(o.library))
	return nil
}

// withLibrary returns env with the path of the library for the ranks.
func (o *Options) withLibrary(env []string) []string {
	if o.library.Path == "" {
		return env
	}
	return world.WithEnv(env, map[string]string{mpilib.Variable: o.library.Path})
}

// checkMachine validates what depends on the machine: the command, MPI, the data.
func (o *Options) checkMachine(job slurm.Job, f form) error {
	if _, err := exec.LookPath("srun"); err != nil && f == formSlurm {
		return noSrun(job)
	}
	// In a batch script the command may be one of the nodes' alone.
	if _, err := exec.LookPath(o.Command[0]); err != nil && f != formSlurm {
		return fmt.Errorf("the training command cannot be started: %w", err)
	}
	if err := o.checkFiles(job.InJob() || f != formLocal); err != nil {
		return err
	}
	if err := o.findLibrary(o.ranks); err != nil {
		return err
	}
	if f == formLocal && o.ranks > 1 {
		if _, err := mpilib.FindMpirun(o.library.Family); err != nil {
			return err
		}
	}
	sets, err := rank.ResolveData(o.cache.Data)
	if err != nil {
		return err
	}
	o.cache.Data = nil
	for _, set := range sets {
		o.cache.Data = append(o.cache.Data, set.String())
	}
	return nil
}

// noSrun says what to do in a job of Slurm where srun is missing: mostly in a container.
func noSrun(job slurm.Job) error {
	outside := "in a container, call rankpool outside of it, and the container in the training " +
		"command: rankpool run … -- apptainer exec IMAGE python train.py"
	if job.Nodes == 1 {
		return fmt.Errorf("srun is not in $PATH, and starts the cache of job %s: on one node "+
			"\"rankpool run --ranks 1\" works without it; or, %s", job.JobID, outside)
	}
	return fmt.Errorf("srun is not in $PATH, and starts the cache on the %d nodes of job %s: %s",
		job.Nodes, job.JobID, outside)
}

// Run starts the cache and the training command, and returns when training has ended. given reports
// whether a flag was given.
func (o *Options) Run(parent context.Context, given func(flag string) bool) (err error) {
	if given("ranks") && o.ranks < 1 {
		return exit.Usagef("--ranks must be at least 1, not %d", o.ranks)
	}
	// Training continues when the reader of run's messages has gone. Catch SIGPIPE instead of
	// ignoring it: commands would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	job, at := slurm.Detect(os.Getenv), world.Find(os.Getenv)
	f := chooseForm(job, at, given("ranks") || given("trainers-per-rank") || given("trainings"))
	if f == formTask {
		if err := o.findLibrary(at.Tasks); err != nil {
			return world.OnceForAll(at, err)
		}
	}
	if err := o.check(job, f, at); err != nil {
		return err
	}
	messages.Use(o.cache.LogFormat)
	if err := o.checkMachine(job, f); err != nil {
		return err
	}
	world.WarnTask(at.Task, o.cache.System.Substitutes())
	if o.self, err = os.Executable(); err != nil {
		return err
	}
	o.launched = rank.NewLaunch()
	base, err := session.Base(o.runtimeDir)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16) // more than a person sends before they are read
	exit.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGUSR2)
	again := &requeue{signal: o.requeueOn, job: job, begin: time.Now(), here: f != formTask ||
		at.Task == 0, signals: signals}
	defer func() { err = again.conclude(err) }() // when all is closed
	if again.here {
		o.logRestart(job)
	}
	if o.requeueOn != 0 && !job.InJob() {
		messages.Say("--requeue has no effect: this is not a Slurm job")
	}
	s, err := session.Open(base, session.Name(f == formSlurm, os.Getuid(), job, os.Getpid()),
		o.ranks)
	if err != nil {
		return err
	}
	defer func() { // training has ended, and its exit code is run's
		if err := s.Remove(); err != nil {
			messages.Say("the session folder cannot be removed: %v", err)
		}
	}()
	if f != formSlurm || onFirstNode(job) {
		o.indexes.Dir = s.Dir
	}
	if err := o.indexData(parent); err != nil {
		return err
	}
	return o.launch(f, job, at, s, again)
}

// indexData indexes every data set, so that the ranks need not scan them, and keeps the indexes for
// the whole run.
func (o *Options) indexData(parent context.Context) error {
	var more []os.Signal
	if o.requeueOn != 0 {
		more = append(more, o.requeueOn)
	}
	ctx, stop := exit.Interruptible(parent, more...)
	defer stop()
	sets, err := rank.ResolveData(o.cache.Data)
	if err != nil {
		return err
	}
	for _, set := range sets {
		show := progress.NewScan(outlet.Stderr, o.progressSeconds == 0)
		m, err := index.Open(ctx, set.Path, index.OpenOptions{
			ScanOptions: o.cache.Choice.Scan(show.Update, func(sentence string) {
				show.End()
				messages.Say("%s", sentence)
			}),
			Log: o.logVerbose,
		})
		show.End()
		if err == nil {
			o.served = append(o.served, servedSet{set.Name, m.Samples(), m.TotalBytes()})
			if err = o.cache.System.CheckData(set.Name, m); err == nil {
				err = o.indexes.Keep(set.Name, m)
			}
		}
		if err != nil {
			return err
		}
	}
	debug.FreeOSMemory() // the manifests were read whole
	return nil
}

// logVerbose prints a message with --verbose only.
func (o *Options) logVerbose(msg string) {
	if o.cache.Verbose {
		messages.Say("%s", msg)
	}
}

// launch starts and watches everything, prints the table, and returns the training command's exit
// code as an error.
func (o *Options) launch(
	f form, job slurm.Job, at world.Place, s *session.Session, again *requeue,
) error {
	if o.cache.Log == "" {
		o.cache.Log = filepath.Join(s.Dir, "run.jsonl")
	}
	logBegin := int64(0)
	if info, err := os.Stat(o.cache.Log); err == nil {
		logBegin = info.Size()
	}
	plan, err := o.layout(f, job, at, s, os.Environ())
	if err != nil {
		return err
	}
	plan.agents = f != formSlurm && isAgent(o.Command)
	if f == formTask && at.Task == 0 {
		messages.Say("started as a task of %s: a rank that dies may end the whole step, and is not "+
			"restarted; called in the batch script without srun, run survives that", at.By)
	}
	l := &launcher{
		plan: plan, session: s, verbose: o.cache.Verbose,
		progress: progress.NewTrain(outlet.Stderr,
			time.Duration(o.progressSeconds*float64(time.Second))),
		exits: make(chan *process, len(plan.trainers)+2), signals: again.signals, again: again,
		unheard: make(chan syscall.Signal, cap(again.signals)), doomed: map[int]bool{},
		bounds: liveness.Options{
			StartWithin: o.startTimeout, AnswerWithin: o.cache.RankTimeout,
		},
	}
	if plan.reports && len(plan.folders) > 0 {
		l.statusDoor = filepath.Join(plan.folders[0], session.DoorName)
	}
	l.greeting = func() string { return servedText(o.served, o.partInMemory(plan.folders)) }
	if err := l.run(); err != nil {
		return err
	}
	if plan.reports {
		log, err := summary.Read(summary.Patience, o.cache.Log, logBegin)
		if err != nil {
			messages.Say("cannot read the run log for the table of epochs: %v", err)
		} else if err := log.Print(os.Stdout, summary.Show{
			Restarts: l.watched.keeper.Restarts(), Failed: l.failure != 0, Resumed: logBegin > 0,
		}); err != nil {
			return err
		}
	}
	if l.failure != 0 {
		return &exit.StatusError{Code: l.failure}
	}
	return nil
}
