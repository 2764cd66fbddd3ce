package launch

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/term"

	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
)

// A form is a way to place ranks and trainers.
type form int

// How a run is launched.
const (
	formLocal form = iota // all on this machine: children of the launcher, or ranks under mpirun
	formSlurm             // in a batch script: two overlapping steps
	// formTask: the launcher is itself one of several tasks of srun or mpirun, one a node.
	formTask
)

// chooseForm decides how to launch. ranksGiven is set if the user has given --ranks or
// --trainers-per-rank; on one node that selects the local form even inside Slurm.
func chooseForm(job slurm.Job, at world.Place, ranksGiven bool) form {
	switch {
	case at.Tasks > 1:
		return formTask
	case job.InJob() && !job.InStep() && (job.Nodes > 1 || !ranksGiven):
		return formSlurm
	}
	return formLocal
}

// A layout describes what a launcher starts and waits for.
type layout struct {
	cache    command
	trainers []command
	// folders of this machine's ranks, whose doors must accept before training begins
	folders []string
	restart bool // a dead cache can be restarted while training runs
	// a command that ends the cache on all nodes; nil: through the doors of folders
	end      []string
	endRanks []string // the same, but keeps the session; nil if end is
	reports  bool     // this launcher shows the progress, the table, and what concerns all
	byMpirun bool     // cache is an mpirun, whose children are the ranks
	// the session folder, if training is a separate step whose number join writes there; else ""
	step string
	// the training command is torchrun, which starts the trainers and dies of SIGUSR1 and SIGUSR2
	agents  bool
	patient bool // the cache ends when all launchers have ended their training
	// why a cache that does not become ready may have been launched wrongly; "" if unknown
	hint string
}

// serve returns the command line of a rank.
func (o *Options) serve() []string { return []string{o.self, "serve"} }

// serveEnv returns env with the options of a rank; together are ranks that end together.
func (o *Options) serveEnv(env []string, sessionDir string, together bool) []string {
	name, value := (&rank.Options{
		CacheOptions: o.cache, Session: sessionDir, Launch: o.launched, Together: together,
		World: o.ranks, Identities: o.indexes.Identities,
	}).Setting()
	return world.WithEnv(env, map[string]string{name: value})
}

// layout returns what to start in a form, and creates the files that this needs in the session
// folder.
func (o *Options) layout(
	f form, job slurm.Job, at world.Place, s *session.Session, env []string,
) (layout, error) {
	if f == formSlurm {
		return o.slurmLayout(job, s.Dir, env), nil
	}
	client, err := ExtractClient(s.Dir, world.Lookup(env))
	if err != nil {
		return layout{}, err
	}
	if f == formTask {
		return o.taskLayout(job, at, s.Dir, client, env), nil
	}
	return o.localLayout(s.Dir, client, env)
}

// localLayout puts all ranks and trainers on this machine.
func (o *Options) localLayout(dir, client string, env []string) (layout, error) {
	l := layout{restart: true, reports: true}
	serving := o.serveEnv(env, dir, false)
	if o.ranks == 1 {
		l.cache = cacheCommand(o.serve(), world.WithoutLaunch(serving))
	} else {
		mpirun, err := mpilib.FindMpirun(o.library.Family)
		if err != nil {
			return layout{}, err
		}
		l.cache = cacheCommand(mpirunArgs(mpirun, o.ranks, o.serve()),
			o.withLibrary(mpirunEnv(serving, os.Getuid(), o.library.Family, dir)))
		l.byMpirun = true
		if o.library.Family == mpilib.OpenMPI {
			// It kills the ranks soon after it gets SIGTERM. If all processes get that, the ranks
			// handle it themselves.
			l.cache.blocked = append(slices.Clone(userSignals), syscall.SIGTERM)
		}
	}
	var ports []int
	for training := range o.trainings {
		port, err := freePort(ports...)
		if err != nil {
			return layout{}, err
		}
		ports = append(ports, port)
		l.trainers = append(l.trainers, o.localTrainers(training, port, dir, client, env)...)
	}
	for r := range o.ranks {
		l.folders = append(l.folders, session.RankFolder(dir, r))
	}
	return l, nil
}

// localTrainers returns the trainers of a training on this machine.
func (o *Options) localTrainers(
	training, port int, dir, client string, env []string,
) (all []command) {
	env = world.WithoutLaunch(env)
	if o.trainings > 1 {
		env = ownGPUs(trainingEnv(env, training, o.trainings))
	}
	trainers := o.ranks * o.trainersPerRank
	for i := range trainers {
		at := seat{
			rank: i, world: trainers, localRank: i, localWorld: trainers, host: "127.0.0.1",
			port:    port,
			threads: max(1, runtime.NumCPU()/(trainers*o.trainings)),
		}
		folder := session.RankFolder(dir, i/o.trainersPerRank)
		trainer := trainerEnv(env, at, dir, folder, client)
		if trainers == 1 {
			trainer = withTorchrun(trainer, "", 1, 0)
		}
		c := o.trainer(i == 0 && o.trainings == 1, trainer)
		c.training, c.among = training, o.trainings
		all = append(all, c)
	}
	return all
}

// taskLayout starts one rank, which inherits this task's place in MPI's world, and its trainers on
// this node.
func (o *Options) taskLayout(
	job slurm.Job, at world.Place, dir, client string, env []string,
) layout {
	folder := session.RankFolder(dir, at.Task)
	l := layout{
		cache:   cacheCommand(o.serve(), o.withLibrary(o.serveEnv(env, dir, true))),
		folders: []string{folder},
		patient: true,
		reports: at.Task == 0,
		hint:    world.LauncherOf(o.library, at.By),
	}
	host := "127.0.0.1"
	if first := firstHost(at, job, world.Lookup(env)); at.LocalTasks < at.Tasks && first != "" {
		host = first
	}
	for g := range o.trainersPerRank {
		s := seat{
			rank: at.Task*o.trainersPerRank + g, world: at.Tasks * o.trainersPerRank,
			localRank:  at.LocalTask*o.trainersPerRank + g,
			localWorld: max(1, at.LocalTasks) * o.trainersPerRank,
			host:       host, port: agreedPort(launchKey(at, job, world.Lookup(env))),
		}
		s.threads = max(1, runtime.NumCPU()/s.localWorld)
		trainer := trainerEnv(world.WithoutLaunch(env), s, dir, folder, client)
		if o.trainersPerRank == 1 && at.LocalTasks <= 1 {
			trainer = withTorchrun(trainer, job.JobID, at.Tasks, at.Task)
		}
		l.trainers = append(l.trainers, o.trainer(false, trainer))
	}
	return l
}

// checkRendezvous returns an error if the tasks are on several machines, and neither Slurm nor
// MASTER_ADDR and MASTER_PORT identify the first one.
func checkRendezvous(at world.Place, job slurm.Job, getenv func(string) string) error {
	told := job.InJob() || getenv("MASTER_ADDR") != "" && getenv("MASTER_PORT") != ""
	if told || at.LocalTasks >= at.Tasks {
		return nil
	}
	return fmt.Errorf("%s started tasks on several machines, and outside Slurm nothing reports "+
		"them where the first one is: set MASTER_ADDR "+
		"to the name of its machine and MASTER_PORT to a free port there, for all tasks (Open "+
		"MPI: mpirun -x MASTER_ADDR -x MASTER_PORT)", at.By)
}

// firstHost returns the machine of task 0. A step may run on a part of the allocation; mpirun
// begins with the allocation's first node, and its daemons are tasks of a step on the others.
func firstHost(at world.Place, job slurm.Job, getenv func(string) string) string {
	if list := getenv("SLURM_STEP_NODELIST"); at.BySrun() && list != "" {
		return slurm.Job{NodeList: list}.FirstHost()
	}
	return job.FirstHost()
}

func (o *Options) trainer(first bool, env []string) command {
	c := command{args: o.Command, env: env, stdout: os.Stdout}
	// The kernel stops a background process group that reads a terminal, so only a pipe or a file is
	// passed on.
	if first && !term.IsTerminal(int(os.Stdin.Fd())) {
		c.stdin = os.Stdin
	}
	return c
}

// launchKey identifies a launch, the same for all its tasks: the numbers of the job and step; under
// mpirun, the job and the namespace that mpirun gave its ranks (its daemons run outside steps, or
// in a step of their own); outside Slurm, the process that started all of them on this machine.
func launchKey(at world.Place, job slurm.Job, getenv func(string) string) string {
	switch {
	case !job.InJob():
		return strconv.Itoa(os.Getppid())
	case at.BySrun():
		return job.JobID + "." + job.StepID
	}
	return job.JobID + "." + getenv("PMIX_NAMESPACE")
}

// MASTER_PORT lies below the kernel's range for outgoing connections (Linux: 32768 up). An outgoing
// connection could occupy a port of that range before training listens, or a trainer that connects
// too early could connect to itself.
const (
	firstMasterPort = 20000
	masterPorts     = 10000
)

// agreedPort returns a port for MASTER_PORT that all tasks of a launch compute alike from its key.
func agreedPort(key string) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, key) // a hash never fails
	return firstMasterPort + int(h.Sum32()%masterPorts)
}

// trainingPort is the agreed port of a training among several.
func trainingPort(key string, training int) int {
	return firstMasterPort + (agreedPort(key)-firstMasterPort+training)%masterPorts
}
