package world

import (
	"os"

	"rankpool/mpicache/transport"
)

// JoinCache joins the other ranks of the cache, or runs alone. world is the number of ranks that
// "rankpool run" has launched: with some launchers a process cannot find it out.
func JoinCache(world int) (transport.Transport, error) {
	at := Find(os.Getenv)
	if at.Tasks <= 1 && world > 1 {
		at.Tasks, at.By = world, byRun
	}
	if at.Tasks <= 1 {
		return transport.NewLocal(1)[0], nil
	}
	library, err := Load()
	if err != nil {
		return nil, OnceForAll(at, err)
	}
	transport, err := startMPI(at, library)
	if err == nil && world > 1 {
		err = CheckWorld(world, byRun, transport.Size(), library)
	}
	if err != nil {
		return nil, OnceForAll(at, err)
	}
	return transport, nil
}

// Open joins the other tasks, or runs alone: a single task needs no MPI, and Open MPI would end it
// if srun does not offer the PMI that it wants.
func Open() (transport.Transport, error) {
	at := Find(os.Getenv)
	if at.Tasks <= 1 {
		return transport.NewLocal(1)[0], nil
	}
	library, err := Load()
	if err != nil {
		return nil, OnceForAll(at, err)
	}
	return startMPI(at, library)
}

// startMPI starts the loaded library, and checks that it sees the tasks of the launch.
func startMPI(at Place, library transport.Library) (transport.Transport, error) {
	transport, err := transport.NewMPI()
	if err != nil {
		return nil, err
	}
	return transport, CheckWorld(at.Tasks, at.By, transport.Size(), library)
}
