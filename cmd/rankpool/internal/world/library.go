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

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
)

const (
	// loadPatience is how long loading a library may take, even from a busy file system.
	loadPatience = time.Minute
	// AloneInit is how long MPI_Init may take in a single process.
	AloneInit = 12 * time.Second
)

// Load loads the MPI library into this process, which will be a rank.
func Load() (transport.Library, error) { return transport.Load(mpilib.Choices(os.Getenv)) }

// A probe is what a child process finds out about the library.
type probe struct {
	transport.Library
	Level   string // the thread level, where MPI was started
	Failure string // "" for a library that was found
}

// Ask finds the library without loading it into this process: a short-lived child loads it.
func Ask() (transport.Library, error) {
	found, err := Probe(loadPatience, "mpi-library")
	if err == nil && found.Failure != "" {
		err = &noMPIError{found.Failure}
	}
	return found.Library, err
}

// A noMPIError is transport.ErrNoLibrary with the text of a child.
type noMPIError struct{ text string }

func (e *noMPIError) Error() string        { return e.text }
func (e *noMPIError) Is(target error) bool { return target == transport.ErrNoLibrary }

// Probe runs one of the hidden commands of this file in a child process, since a library may end a
// process whose environment it rejects. The choices depend on this process's place among the tasks
// of a launcher, which the child must not inherit: it reads the choices from stdin.
func Probe(patience time.Duration, command string) (found probe, err error) {
	self, err := os.Executable()
	if err != nil {
		return found, err
	}
	choices, err := json.Marshal(mpilib.Choices(os.Getenv))
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

// NewLibraryCommand is the child process that finds the MPI library: it reads mpilib.Choices and
// writes a probe.
func NewLibraryCommand() *cobra.Command {
	return hiddenProbe("mpi-library", func(*probe) error { return nil })
}

// NewStartCommand is the child process with which doctor tests whether MPI starts.
func NewStartCommand() *cobra.Command {
	return hiddenProbe("mpi-start", func(found *probe) error {
		world, err := transport.NewMPI()
		if err != nil {
			return err
		}
		found.Level = world.(*transport.MPI).ThreadLevel()
		return world.Close()
	})
}

// hiddenProbe is a command that loads the library, and then finds out more.
func hiddenProbe(name string, more func(found *probe) error) *cobra.Command {
	return &cobra.Command{
		Use:    name,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var choices []mpilib.Choice
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&choices); err != nil {
				return err
			}
			library, err := transport.Load(choices)
			found := probe{Library: library}
			if err == nil {
				err = more(&found)
			}
			if err != nil {
				found.Failure = err.Error()
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(found)
		},
	}
}
