package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
)

const (
	// loadPatience is how long a library may take to be loaded, from a file system that is busy
	// too.
	loadPatience = time.Minute
	// AloneInit is how long MPI_Init may take in one process by itself.
	AloneInit = 12 * time.Second
)

// MPIOptions say which MPI library to load.
type MPIOptions struct {
	Wish mpilib.Wish
}

// Register adds the flags.
func (o *MPIOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.Wish.Library, "mpi-library", "",
		"the MPI library, a path or a name that the loader looks for (default: $"+mpilib.Variable+
			", else that of the launcher, of mpirun in $PATH, or the loader's)")
}

// Load loads the library into this process, which will be a rank.
func (o MPIOptions) Load() (transport.Library, error) {
	return transport.Load(o.Wish.Choices(os.Getenv))
}

// A Probe is what a process of its own finds out about the library.
type probe struct {
	transport.Library
	Level   string // the thread level, where MPI was started
	Failure string // "" for a library that was found
}

// Ask looks for the library without loading it into this process: a child does, and ends.
func (o MPIOptions) Ask() (transport.Library, error) {
	found, err := o.Probe(loadPatience, "mpi-library")
	if err == nil && found.Failure != "" {
		err = &noMPIError{found.Failure}
	}
	return found.Library, err
}

// A noMPIError is mpicache.ErrNoMPI in the words of a child.
type noMPIError struct{ text string }

func (e *noMPIError) Error() string        { return e.text }
func (e *noMPIError) Is(target error) bool { return target == transport.ErrNoLibrary }

// Probe runs one of the hidden commands of this file in a process of its own, since a library may
// end the process that it does not like. What this process is among the tasks of a launcher shows
// in the choices, and is none of the child's business.
func (o MPIOptions) Probe(patience time.Duration, command string) (found probe, err error) {
	self, err := os.Executable()
	if err != nil {
		return found, err
	}
	choices, err := json.Marshal(o.Wish.Choices(os.Getenv))
	if err != nil {
		return found, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	child := exec.CommandContext(ctx, self, command)
	child.Env = WithoutLaunch(os.Environ(), "SLURM_")
	child.Stdin, child.WaitDelay = bytes.NewReader(choices), time.Second
	out, err := child.Output()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return found, fmt.Errorf("%s has not ended in %v", command, patience)
	case errors.As(err, &exit):
		text := strings.TrimSpace(string(exit.Stderr))
		return found, fmt.Errorf("%w: %s", err, text[strings.LastIndexByte(text, '\n')+1:])
	case err != nil:
		return found, err
	}
	return found, json.Unmarshal(out, &found)
}

// NewLibraryCommand is what a process starts to look for the MPI library: it reads
// mpilib.Choices and writes a probe.
func NewLibraryCommand() *cobra.Command {
	return hiddenProbe("mpi-library", func(choices []mpilib.Choice) (found probe, err error) {
		found.Library, err = transport.Load(choices)
		return found, err
	})
}

// NewStartCommand is what doctor starts to see whether MPI starts.
func NewStartCommand() *cobra.Command {
	return hiddenProbe("mpi-start", func(choices []mpilib.Choice) (found probe, err error) {
		if found.Library, err = transport.Load(choices); err != nil {
			return found, err
		}
		world, err := transport.NewMPI()
		if err != nil {
			return found, err
		}
		found.Level = world.(*transport.MPI).ThreadLevel()
		return found, world.Close()
	})
}

func hiddenProbe(name string, do func([]mpilib.Choice) (probe, error)) *cobra.Command {
	return &cobra.Command{
		Use:    name,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var choices []mpilib.Choice
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&choices); err != nil {
				return err
			}
			found, err := do(choices)
			if err != nil {
				found.Failure = err.Error()
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(found)
		},
	}
}
