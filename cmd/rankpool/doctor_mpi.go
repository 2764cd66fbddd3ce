package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/doctor"
	"rankpool/mpicache"
)

const (
	// initPatience is how long MPI_Init may take on all nodes: seconds on thousands, or for ever when a rank is missing.
	initPatience = time.Minute
	// aloneInit is the same for one process by itself.
	aloneInit = 12 * time.Second
)

// joinDoctors starts MPI where a launcher started this process, and returns the transport of all ranks; nil when this process stays
// alone. What went wrong is in env.
func joinDoctors(env *doctor.Env, at place) mpicache.Transport {
	built := env.MPI.Flavour != ""
	if at.tasks == 0 || !built || at.by == bySrunPlain {
		// Open MPI ends a task of a srun without --mpi in MPI_Init, so that is not tried.
		env.Launch.Failure = checkWorld(at.tasks, at.by, 1, built)
		return nil
	}
	type joined struct {
		transport mpicache.Transport
		err       error
	}
	done := make(chan joined, 1)
	go func() {
		transport, err := mpicache.NewMPI()
		done <- joined{transport, err}
	}()
	select {
	case j := <-done:
		if j.err != nil {
			env.MPI.Failure = j.err
			return nil
		}
		if m, ok := j.transport.(*mpicache.MPI); ok {
			env.MPI.Level = m.ThreadLevel()
		}
		env.Launch.Failure = checkWorld(at.tasks, at.by, j.transport.Size(), built)
		return j.transport
	case <-time.After(initPatience):
		env.MPI.Failure = fmt.Errorf("MPI_Init has not returned in %v", initPatience)
		return nil
	}
}

// probeMPI starts MPI in a process of its own, since a library that does not like its environment ends the process.
func probeMPI() (level string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), aloneInit)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "doctor-mpi")
	cmd.Env = withoutLaunch(os.Environ(), "SLURM_")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("MPI_Init has not returned in %v", aloneInit)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		text := strings.TrimSpace(string(exit.Stderr))
		return "", fmt.Errorf("%w: %s", err, text[strings.LastIndexByte(text, '\n')+1:])
	}
	return strings.TrimSpace(string(out)), err
}

// newDoctorMPICommand is what doctor starts to see whether MPI starts.
func newDoctorMPICommand() *cobra.Command {
	return &cobra.Command{
		Use:    "doctor-mpi",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			transport, err := mpicache.NewMPI()
			if err != nil {
				return err
			}
			if m, ok := transport.(*mpicache.MPI); ok {
				fmt.Fprintln(cmd.OutOrStdout(), m.ThreadLevel())
			}
			return transport.Close()
		},
	}
}
