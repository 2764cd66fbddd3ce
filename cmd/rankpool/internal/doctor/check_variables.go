package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// A hurtful is an environment variable that, with certain values, slows or stops rankpool.
type hurtful struct {
	name           string
	when           func(value string, env *Env) bool
	detail, advice string
}

// hurtfuls are all of them.
//
// Source: SchedMD, srun(1), INPUT ENVIRONMENT VARIABLES; measured with UCX 1.13, Open MPI 4.1 and
// MPICH 4.0: a progress thread of MPI's own spins on a core, and UCX's handlers of signals end a
// process whose signals Go or the launcher wants.
var hurtfuls = []hurtful{
	{
		"SLURM_EXCLUSIVE", isSet,
		"makes every srun wait for its own CPUs, so the training step waits for the cache's",
		"unset it, or give srun --overlap",
	},
	{
		"SLURM_MPI_TYPE", otherMPI, "has srun start ranks in a way that does not fit this MPI",
		"give srun the --mpi of check \"launcher\"",
	},
	{
		"UCX_ERROR_SIGNALS", asksToSave,
		"has UCX end a rank at a signal that asks it to save its state", "unset it",
	},
	{
		"MPIR_CVAR_ASYNC_PROGRESS", isTrue, "has MPICH spin on a core; rankpool polls by itself",
		"unset it",
	},
	{"MPICH_ASYNC_PROGRESS", isTrue, "has MPICH spin on a core; rankpool polls by itself", "unset it"},
}

func isSet(v string, _ *Env) bool { return v != "" && v != "0" }
func isTrue(v string, _ *Env) bool {
	return v == "1" || strings.EqualFold(v, "true") || strings.EqualFold(v, "yes")
}

func otherMPI(v string, env *Env) bool {
	return env.MPI.Library != "" && v != "" && v != env.Launch.SrunMPI &&
		!strings.HasPrefix(v, env.Launch.SrunMPI+"_v")
}

// asksToSave matches values with a signal that asks a rank to save its state.
func asksToSave(v string, _ *Env) bool {
	return slices.ContainsFunc([]string{"TERM", "USR1", "USR2", "INT", "HUP"}, func(w string) bool {
		return strings.Contains(strings.ToUpper(v), w)
	})
}

// fabric returns the name of an RDMA device of this machine, "" if there is none.
func fabric(env *Env) string {
	names, err := env.Machine.ReadDir("/sys/class/infiniband")
	if err != nil || len(names) == 0 {
		return ""
	}
	return names[0]
}

func checkVariables(env *Env) []Finding {
	var found []Finding
	for _, h := range hurtfuls {
		if v := env.getenv(h.name); v != "" && h.when(v, env) {
			found = append(found, warning(fmt.Sprintf("%s=%s %s", h.name, v, h.detail), h.advice)...)
		}
	}
	if found == nil {
		found = good("none that hurts is set")
	}
	return found
}
