package doctor

import "fmt"

// checkMPI checks the library and the thread level: one goroutine at a time calls MPI, from any
// thread.
func checkMPI(env *Env) []Finding {
	m := env.MPI
	if m.Library == "" {
		const advice = "load an MPI module, install Open MPI or MPICH, or name a library in " +
			"RANKPOOL_MPI_LIBRARY"
		if env.Launch.Tasks > 1 || env.Job.Nodes > 1 {
			return bad(fmt.Sprintf("ranks cannot find each other: %v", m.Missing), advice)
		}
		return warning(fmt.Sprintf("one rank only: %v", m.Missing), advice)
	}
	level, err := m.Level, m.Failure
	if level == "" && err == nil && m.Probe != nil {
		level, err = m.Probe()
	}
	if err != nil {
		return bad(fmt.Sprintf("%s does not start: %v", m.Library, err),
			"see whether a small MPI program runs, or choose another library: load its module, or name "+
				"one in RANKPOOL_MPI_LIBRARY")
	}
	detail := fmt.Sprintf("rankpool %s with %s (%s, since %s)", env.Version, m.Library, m.Path, m.Why)
	if level != "" {
		detail += ", thread level " + level
	}
	return good(detail)
}

// checkLauncher compares what was started with what MPI sees.
func checkLauncher(env *Env) []Finding {
	l := env.Launch
	advice := "run it on all nodes: srun --mpi=" + l.SrunMPI + " --ntasks-per-node=1 rankpool doctor"
	switch {
	case l.Failure != nil:
		return bad(l.Failure.Error(), "start one rank a node as the sentence says; this list "+
			"is of one node only")
	case l.Tasks > 0:
		return good(fmt.Sprintf("%s started %d ranks, and MPI sees as many", l.By, l.Tasks))
	case env.Job.InJob() && env.Job.Nodes > 1:
		return warning(fmt.Sprintf("started by hand, so this list is of one of the "+
			"job's %d nodes", env.Job.Nodes), advice)
	}
	return good("started by hand")
}
