package main

import (
	"errors"
	"fmt"
	"time"

	"rankpool/cmd/rankpool/internal/doctor"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport"
)

// initPatience is how long MPI_Init may take on all nodes: seconds on thousands of nodes, but
// forever if a rank is missing.
const initPatience = time.Minute

// joinDoctors starts MPI if a launcher started this process, and returns the transport of all
// ranks; nil if this process stays alone. Errors are recorded in env.
func joinDoctors(env *doctor.Env, at world.Place, library transport.Library) transport.Transport {
	if at.Tasks > 1 && env.MPI.Missing != nil {
		env.Launch.Failure = fmt.Errorf("%s started %d tasks, which need MPI, and %w", at.By,
			at.Tasks, env.MPI.Missing)
		return nil
	}
	if at.Tasks == 0 || env.MPI.Missing != nil || at.By == world.BySrunPlain {
		// Under srun without --mpi, Open MPI kills the task in MPI_Init, so do not try.
		env.Launch.Failure = world.CheckWorld(at.Tasks, at.By, 1, library)
		return nil
	}
	joined, failed := make(chan transport.Transport, 1), make(chan error, 1)
	go func() {
		if ranks, err := transport.NewMPI(); err != nil {
			failed <- err
		} else {
			joined <- ranks
		}
	}()
	select {
	case ranks := <-joined:
		if m, ok := ranks.(*transport.MPI); ok {
			env.MPI.Level = m.ThreadLevel()
		}
		env.Launch.Failure = world.CheckWorld(at.Tasks, at.By, ranks.Size(), library)
		return ranks
	case env.MPI.Failure = <-failed:
	case <-time.After(initPatience):
		env.MPI.Failure = fmt.Errorf("MPI_Init has not returned in %v", initPatience)
	}
	return nil
}

// probeMPI starts MPI in a separate process, since a library that rejects its environment ends the
// process.
func probeMPI() (level string, err error) {
	found, err := world.Probe(world.AloneInit, "mpi-start")
	switch {
	case err != nil:
		return "", err
	case found.Failure != "":
		return "", errors.New(found.Failure)
	}
	return found.Level, nil
}
