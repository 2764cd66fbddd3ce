package doctor

import (
	"fmt"
	"strings"
	"time"
)

// commandWithin is how long a small program may take: srun may wait for slurmctld.
const commandWithin = 8 * time.Second

// checkSlurm checks whether srun runs, and has the plugin for this MPI.
func checkSlurm(env *Env) []Finding {
	text, err := env.Machine.Output(commandWithin, nil, "srun", "--version")
	if err != nil {
		if !env.Job.InJob() {
			return good("srun is not there, or knows no cluster: ranks are started by mpirun")
		}
		return warning(fmt.Sprintf("this is job %s, but srun cannot be run here: %v", env.Job.JobID, err),
			"put srun into $PATH; in a container, bind it and Slurm's configuration into it")
	}
	version := strings.TrimSpace(text)
	if env.Job.InJob() {
		version += ", job " + env.Job.JobID
	}
	return append(good(version), checkSrunMPI(env)...)
}

// checkSrunMPI looks for the plugin with which srun starts ranks of this MPI.
func checkSrunMPI(env *Env) []Finding {
	if env.MPI.Library == "" {
		return nil
	}
	text, err := env.Machine.Output(commandWithin, nil, "srun", "--mpi=list")
	if err != nil {
		return nil // an old srun, which has no list
	}
	want := env.Launch.SrunMPI
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, ",", " ")) {
		if word == want || strings.HasPrefix(word, want+"_v") {
			return good("srun has --mpi=" + want + ", which " + env.MPI.Flavour + " needs")
		}
	}
	return bad("srun has no --mpi="+want+", which "+env.MPI.Flavour+" needs; it has: "+oneLine(text),
		"start the ranks with mpirun in the batch script, or load another MPI")
}
