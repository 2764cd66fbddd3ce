package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool/internal/doctor"
	"rankpool/cmd/rankpool/internal/launch"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport"
	"rankpool/slurm"
)

const aboutDoctor = `Doctor checks whether a run would start on this node, or on every node of an
allocation, and whether it would fail or be slow for a known reason: MPI and its launcher, Slurm,
limits, memory, file systems and Python. Each line says good, warning or bad, then what was found,
and below it what to do. Doctor changes nothing.

When started as one rank per node, it checks all nodes, and rank 0 prints one list in which findings
common to all nodes take a single line.`

const doctorExits = `Exit codes:
  0      all good, or warnings only
  1      something is bad; with --strict a warning too
  2      wrong usage
  128+n  ended by signal n`

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	data       []string
	memory     string
	tier       string
	python     string
	runtimeDir string
	only       []string
	json       bool
	strict     bool

	size   memory.Amount // parsed from memory, unless it is auto
	place  *doctor.Tier  // found for tier
	checks []doctor.Check
}

func newDoctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check a node or an allocation, and suggest fixes",
		Long:  aboutDoctor + "\n\n" + doctorExits,
		Example: "  rankpool doctor --data /lustre/imagenet/train --memory 64GiB\n" +
			"  srun --mpi=pmix --ntasks-per-node=1 rankpool doctor --data /lustre/imagenet/train",
		Args: program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			at := world.Find(os.Getenv)
			if err := o.check(); err != nil {
				return at.OnlyFirst(err)
			}
			return o.examine(cmd, at)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.data, "data", nil,
		"data set to check: [NAME=]DIR or [NAME=]MANIFEST; may be given several times")
	flags.StringVar(&o.memory, "memory", "",
		"check that this much memory is free on each node, as for \"run --memory\" (64GiB)")
	flags.StringVar(&o.tier, "tier", "",
		"check the folder that \"run --tier\" would use, in the same form (DIR:SIZE,keep)")
	flags.StringVar(&o.python, "python", "", "the Python that trains (default: python3 in $PATH)")
	flags.StringVar(&o.runtimeDir, "runtime-dir", "",
		"folder for sessions, as for \"run\" (default: /dev/shm, $TMPDIR or /tmp)")
	flags.StringSliceVar(&o.only, "only", nil, "run only these checks, such as mpi,data")
	flags.BoolVar(&o.json, "json", false,
		"print a JSON list of {check, status, detail, advice}, with node if there are several")
	flags.BoolVar(&o.strict, "strict", false, "exit with code 1 on warnings too")
	return cmd
}

func (o *doctorOptions) check() (err error) {
	if o.memory != "" && o.memory != memory.Auto {
		if o.size, err = memory.Parse(o.memory); err != nil {
			return exit.Usagef("--memory: %w", err)
		}
	}
	if o.tier != "" {
		tier, err := rank.FindTier(o.tier)
		if err != nil {
			return exit.Usagef("--tier: %w", err)
		}
		o.place = (*doctor.Tier)(&tier)
	}
	o.checks, err = doctor.Select(o.only)
	if err != nil {
		return exit.Usagef("--only: %w", err)
	}
	return nil
}

// examine runs the checks, together with the other ranks if there are any.
func (o *doctorOptions) examine(cmd *cobra.Command, at world.Place) error {
	ctx, stop := exit.Interruptible(cmd.Context())
	defer stop()
	env, library := o.environment(at)
	transport := joinDoctors(env, at, library)
	alone := transport == nil || transport.Size() == 1
	if alone && at.Task > 0 {
		// The first task prints the error, unless mpirun ends it because another one has failed.
		return nil
	}
	if transport != nil {
		env.Rank = transport.Rank()
		// An error here means that a rank is gone, which has been reported.
		defer func() { _ = transport.Close() }()
	}
	defer o.handOutClient(env)()
	if alone {
		found, err := doctor.Run(ctx, env, o.checks)
		if err != nil {
			return err
		}
		return o.conclude(cmd, doctor.Combine([]doctor.Report{{Findings: found}}))
	}
	group := doctor.Join(transport, hostName(env.Job), nil)
	defer group.Close()
	if transport.Rank() != 0 {
		return o.assist(ctx, group, env)
	}
	return o.preside(ctx, cmd, group, env)
}

// assist is a rank other than 0: it checks its node, reports, and answers until rank 0 has all.
func (o *doctorOptions) assist(ctx context.Context, group *doctor.Group, env *doctor.Env) error {
	found, err := doctor.Run(ctx, env, o.checks)
	if err != nil {
		return err
	}
	group.Report(ctx, found)
	if err := group.AwaitEnd(ctx); err != nil {
		return fmt.Errorf("rank %d: %w", env.Rank, err)
	}
	return nil
}

// preside is rank 0.
func (o *doctorOptions) preside(
	ctx context.Context, cmd *cobra.Command, group *doctor.Group, env *doctor.Env,
) error {
	defer group.End()
	found, err := doctor.Run(ctx, env, o.checks)
	if err != nil {
		return err
	}
	var world doctor.World
	if world.Reports, world.Lost, err = group.Gather(ctx, found); err != nil {
		return err
	}
	if o.makes("ranks") {
		world.Reports[0].Findings = append(world.Reports[0].Findings, world.Findings()...)
	}
	return o.conclude(cmd, doctor.Combine(world.Reports))
}

func (o *doctorOptions) makes(check string) bool {
	return slices.ContainsFunc(o.checks, func(c doctor.Check) bool { return c.Name == check })
}

// conclude prints the list, and derives the exit code from it.
func (o *doctorOptions) conclude(cmd *cobra.Command, findings []doctor.Finding) error {
	if len(findings) == 0 {
		return exit.Usagef("--only: nothing to check: \"data\" needs --data, \"tier\" needs --tier, " +
			"and \"ranks\" one rank a node, started with srun or mpirun")
	}
	print := doctor.Print
	if o.json {
		print = doctor.PrintJSON
	}
	if err := print(cmd.OutOrStdout(), findings); err != nil {
		return err
	}
	if worst := doctor.Worst(findings); worst == doctor.Bad || o.strict && worst == doctor.Warning {
		return &exit.StatusError{Code: exit.Failure}
	}
	return nil
}

// environment returns what is known before MPI is started, and the MPI library.
func (o *doctorOptions) environment(at world.Place) (*doctor.Env, transport.Library) {
	job := slurm.Detect(os.Getenv)
	find := world.Ask
	if at.Tasks > 0 {
		find = world.Load // it is a rank
	}
	library, missing := find()
	env := &doctor.Env{
		Machine: doctor.NewSystem(), Job: job, MemoryBytes: o.size.Bytes, Tier: o.place,
		Version: version.Text,
		MPI: doctor.MPI{
			Library: library.Version, Path: library.Path, Why: library.Why, Missing: missing,
			Flavour: library.Family.String(),
		},
		Launch: doctor.Launch{
			Tasks: at.Tasks, By: at.By, LocalTasks: at.LocalTasks,
			SrunMPI: world.SlurmMPI(library.Family, world.SrunList()),
		},
		Python: doctor.Python{Command: cmp.Or(o.python, "python3"), Given: o.python != ""},
	}
	if at.Tasks == 0 && missing == nil {
		env.MPI.Probe = probeMPI
	}
	for _, flag := range o.data {
		sets, err := rank.ResolveData([]string{flag})
		if err != nil { // a check reports it
			if m := rank.NamedData.FindStringSubmatch(flag); m != nil {
				flag = m[2]
			}
			if abs, err := filepath.Abs(flag); err == nil {
				flag = abs
			}
			env.Data = append(env.Data, flag)
		}
		for _, set := range sets {
			env.Data = append(env.Data, set.Path)
		}
	}
	base, err := session.Base(o.runtimeDir)
	// a pid has at most 22 bits
	longest := session.RankFolder(
		filepath.Join(base, session.Name(job.InJob(), os.Getuid(), job, 1<<22)),
		max(9, at.Tasks-1))
	env.Runtime = doctor.Runtime{
		Base: base, SocketPath: filepath.Join(longest, session.DoorName), Failure: err,
	}
	return env, library
}

// hostName is the node's name in Slurm's lists, else the machine's.
func hostName(job slurm.Job) string {
	if job.InStep() && job.NodeName != "" {
		return job.NodeName
	}
	host, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return host
}

// handOutClient extracts the Python client for check "python" as "run" does, and returns a function
// that removes it.
func (o *doctorOptions) handOutClient(env *doctor.Env) (remove func()) {
	remove = func() {}
	if !o.makes("python") || env.Runtime.Failure != nil {
		return remove
	}
	dir, err := os.MkdirTemp(env.Runtime.Base,
		fmt.Sprintf(".rankpool-%d-pid%d-", os.Getuid(), os.Getpid()))
	if err != nil {
		env.Python.Failure = fmt.Errorf("the Python client cannot be extracted: %w", err)
		return remove
	}
	env.Python.Path, env.Python.Failure = launch.ExtractClient(dir, os.Getenv)
	return func() { _ = os.RemoveAll(dir) } // the next run removes what is left
}
