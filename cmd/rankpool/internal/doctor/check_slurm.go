package doctor

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// commandWithin is how long a small program may take: srun may wait for slurmctld.
const commandWithin = 8 * time.Second

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)`)

// checkSlurm checks the version, since --overlap came with 20.11, and the plugin for this MPI.
//
// Source: SchedMD, RELEASE_NOTES of 20.11: steps are exclusive by default, and --overlap is new.
func checkSlurm(env *Env) []Finding {
	text, err := env.Machine.Output(commandWithin, nil, "srun", "--version")
	if err != nil {
		if _, missing := env.Machine.LookPath("srun"); !env.Job.InJob() && missing == nil {
			return good("srun is there, but knows no cluster: ranks are started by mpirun")
		}
		if !env.Job.InJob() {
			return good("no Slurm on this machine: ranks are started by mpirun")
		}
		return warning(fmt.Sprintf("this is job %s, but srun cannot be run here: %v", env.Job.JobID, err),
			"put srun into $PATH; in a container, bind it and Slurm's configuration into it")
	}
	version := strings.TrimSpace(text)
	if m := versionNumber.FindStringSubmatch(version); m != nil {
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi(m[2])
		if major < 20 || major == 20 && minor < 11 {
			return warning(version+" does not know --overlap, with which the cache runs beside training",
				"use the form of one step: srun rankpool run …")
		}
	}
	if !env.Job.InJob() {
		return append(good(version+", outside a job"), checkSrunMPI(env)...)
	}
	return append(good(version+", job "+env.Job.JobID), checkSrunMPI(env)...)
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
	want, advice := env.Launch.SrunMPI, "start the ranks with mpirun in the batch script, or load "+
		"another MPI"
	if env.MPI.Flavour == "Open MPI" && want == "pmi2" {
		return warning("srun has no --mpi=pmix, and few builds of Open MPI speak "+
			"PMI2; it has: "+oneLine(text), advice)
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, ",", " ")) {
		if word == want || strings.HasPrefix(word, want+"_v") {
			return good("srun has --mpi=" + want + ", which " + env.MPI.Flavour + " needs")
		}
	}
	return bad("srun has no --mpi="+want+", which "+env.MPI.Flavour+" needs; it has: "+
		oneLine(text), advice)
}
