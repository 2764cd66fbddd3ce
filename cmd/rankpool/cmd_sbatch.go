package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/batchscript"
	"rankpool/cmd/rankpool/internal/launch"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/world"
)

const aboutSbatch = `sbatch prints a Slurm batch script that runs a training command under "rankpool
run". It is ready to submit, with a comment on each line whose purpose is not obvious.

  rankpool sbatch --nodes 4 --gpus-per-node 4 --data /lustre/imagenet -o train.sh -- python train.py
  sbatch train.sh

srun starts one training process per GPU. torchrun, accelerate launch and deepspeed start the
processes themselves, and run once per node; torchrun gets the address of the rendezvous, unless it
has --nnodes. The command's arguments are passed on literally: the batch shell does not expand
variables in them.

With --requeue the job continues in a new one after its time limit or a preemption: training gets
SIGUSR1 early enough to write its checkpoint, and Slurm starts the script again. The training script
checks for this with rankpool.Stop().

With --check SCRIPT it reads an existing script (-: standard input) and lists what will go wrong,
one problem per line: a cache that keeps training waiting, an MPI that does not start, a signal
without a handler. It does not query Slurm, and looks for no file.

Exit codes of --check:
  0  nothing was found
  1  warnings
  2  the script cannot be read`

// sbatchOptions are the flags of sbatch.
type sbatchOptions struct {
	batchscript.Options
	cpusPerGPU int
	output     string
	check      string
	json       bool
}

func newSbatchCommand() *cobra.Command {
	var o sbatchOptions
	cmd := &cobra.Command{
		Use:   "sbatch {--data DIR [flags] -- COMMAND… | --check SCRIPT}",
		Short: "Write or check a Slurm batch script",
		Long:  aboutSbatch,
		Example: "  rankpool sbatch --nodes 4 --gpus-per-node 4 --data /lustre/imagenet " +
			"--requeue -- python train.py | sbatch\n" +
			"  rankpool sbatch --check train.sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("check") {
				return o.runCheck(cmd, args)
			}
			o.Command = args
			return o.write(cmd)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.IntVarP(&o.Nodes, "nodes", "N", 1, "nodes of the job")
	flags.Var((*gpusFlag)(&o.Options), "gpus-per-node",
		"GPUs of each node, also with their type (a100:4)")
	flags.IntVar(&o.cpusPerGPU, "cpus-per-gpu", 8,
		"CPU cores for each GPU, or of a node without any")
	flags.IntVarP(&o.CPUsPerTask, "cpus-per-task", "c", 0,
		"CPU cores of each task of srun, instead of --cpus-per-gpu")
	flags.StringArrayVar(&o.Data, "data", nil,
		"data set: [NAME=]DIR or [NAME=]MANIFEST; may be given several times")
	flags.StringVar(&o.Memory, "memory", "auto",
		"memory for samples, as for \"rankpool run --memory\"")
	flags.StringVar(&o.Mem, "mem", "0",
		"memory of the job on each node, as for Slurm (400G); 0: all of the node's")
	flags.StringVarP(&o.Time, "time", "t", "04:00:00",
		"time limit of the job: minutes, HH:MM:SS or D-HH:MM:SS")
	flags.BoolVar(&o.Requeue, "requeue", false,
		"continue in a new job after the time limit or a preemption")
	flags.IntVar(&o.SignalSeconds, "signal-seconds", 120,
		"with --requeue: seconds before the end at which training gets SIGUSR1")
	flags.StringVarP(&o.Partition, "partition", "p", "", "partition of the cluster")
	flags.StringVarP(&o.Account, "account", "A", "", "account to charge")
	flags.StringVarP(&o.JobName, "job-name", "J", "", "name of the job")
	flags.StringVarP(&o.Array, "array", "a", "",
		"tasks of a job array: 0-9, or 0-9%2 for two at a time")
	flags.StringArrayVar(&o.Modules, "module", nil,
		"environment module to load; may be given several times")
	flags.StringVarP(&o.output, "output", "o", "", "write the script to this file")
	flags.StringVar(&o.check, "check", "",
		"check this script (-: standard input) and list what will go wrong")
	flags.BoolVar(&o.json, "json", false,
		"with --check: print the warnings as a JSON list of {line, check, warning, advice}")
	return cmd
}

// gpusFlag is --gpus-per-node: a number, or a type and a number.
type gpusFlag batchscript.Options

// String implements pflag.Value.
func (g *gpusFlag) String() string { return batchscript.Options(*g).GPUs() }

// Type implements pflag.Value.
func (g *gpusFlag) Type() string { return "[TYPE:]N" }

// Set implements pflag.Value.
func (g *gpusFlag) Set(text string) error {
	at := strings.LastIndexByte(text, ':')
	n, err := strconv.ParseUint(text[at+1:], 10, 16)
	if err != nil || at == 0 {
		return errors.New("it must be the number of GPUs of a node, as in 4 or a100:4")
	}
	g.GPUsPerNode, g.GPUType = int(n), text[:max(0, at)]
	return nil
}

// write writes the script, and to stderr what --check would find in it.
func (o *sbatchOptions) write(cmd *cobra.Command) error {
	switch {
	case len(o.Command) == 0:
		return exit.NoCommand("rankpool sbatch --data DIR -- python train.py")
	case len(o.Data) == 0:
		return exit.NoData()
	case o.json:
		return exit.Usagef("--json prints the warnings of --check")
	case cmd.Flags().Changed("cpus-per-task") && cmd.Flags().Changed("cpus-per-gpu"):
		return exit.Usagef("--cpus-per-task and --cpus-per-gpu exclude each other: leave one out")
	case cmd.Flags().Changed("signal-seconds") && !o.Requeue:
		return exit.Usagef("--signal-seconds needs --requeue")
	}
	if _, err := memoryBytes(o.Memory); err != nil {
		return exit.Usagef("--memory: %w", err)
	}
	if err := launch.WrongCommand(o.Command, o.TasksPerNode()); err != nil {
		return err
	}
	if o.CPUsPerTask == 0 {
		o.CPUsPerTask = o.cpusPerGPU * max(1, o.GPUsPerNode) / o.TasksPerNode()
	}
	text, err := batchscript.Generate(o.Options)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	warnings, err := warningsOf(text, cmd.Root())
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "rankpool: warning:", sentence(w))
	}
	if o.output == "" {
		_, err = io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	// minus the umask, like a shell's redirection
	return os.WriteFile(o.output, []byte(text), 0o666)
}

// runCheck reads a script and prints what will go wrong.
func (o *sbatchOptions) runCheck(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("--check takes one script, and no training command")
	}
	text, err := readScript(o.check, cmd.InOrStdin())
	if err != nil {
		return exit.Usagef("script %s cannot be read: %w", o.check, rank.Pathless(err))
	}
	warnings, err := warningsOf(text, cmd.Root())
	if err != nil {
		return exit.Usagef("script %s cannot be read: %w", o.check, err)
	}
	out := cmd.OutOrStdout()
	if o.json {
		// [] and not null
		err = json.NewEncoder(out).Encode(append([]batchscript.Warning{}, warnings...))
	} else {
		for _, w := range warnings {
			if _, err = fmt.Fprintln(out, sentence(w)); err != nil {
				break
			}
		}
	}
	if err == nil && len(warnings) > 0 {
		return &exit.StatusError{Code: exit.Failure}
	}
	return err
}

// readScript reads a file, or standard input for "-", up to the size that a script may have.
func readScript(name string, stdin io.Reader) (string, error) {
	in, err := openInput(name, stdin)
	if err != nil {
		return "", err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, batchscript.MaxBytes+1))
	return string(text), err
}

func sentence(w batchscript.Warning) string {
	return fmt.Sprintf("line %d: %s; %s", w.Line, w.What, w.Advice)
}

// warningsOf checks a script for this version of rankpool and this machine.
func warningsOf(text string, root *cobra.Command) ([]batchscript.Warning, error) {
	script, err := batchscript.Parse(text)
	if err != nil {
		return nil, err
	}
	mpi := ""
	if library, err := world.Ask(); err == nil { // a login node may have none
		mpi = world.SlurmMPI(library.Family, world.SrunList())
	}
	return batchscript.Check(script, batchscript.Facts{
		MPI: mpi,
		Flags: func(subcommand string) *pflag.FlagSet {
			for _, c := range root.Commands() {
				if c.Name() == subcommand {
					c.InitDefaultHelpFlag()
					return c.Flags()
				}
			}
			return nil
		},
		Size: memoryBytes,
	}), nil
}

// memoryBytes parses --memory; it returns 0 for a share and for auto, which depend on the node.
func memoryBytes(text string) (int64, error) {
	if text == memory.Auto {
		return 0, nil
	}
	size, err := memory.Parse(text)
	return size.Bytes, err
}
