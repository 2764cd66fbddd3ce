package world

import (
	"maps"
	"slices"
	"strings"
)

// WithEnv returns env with the variables set, in order of name; env is not modified.
func WithEnv(env []string, set map[string]string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		_, replaced := set[name]
		return replaced
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}

// Lookup returns a function like os.Getenv over env; the last of several lines wins.
func Lookup(env []string) func(string) string {
	return func(name string) string {
		for _, line := range slices.Backward(env) {
			if value, found := strings.CutPrefix(line, name+"="); found {
				return value
			}
		}
		return ""
	}
}

// WithoutLaunch returns env without the variables by which mpirun or srun describe this process's
// place among its tasks, so that a child does not believe that it is a task. Variables that the
// user set (OMPI_MCA_btl, MPIR_CVAR_…) stay, unless Open MPI's mpirun has set variables of the same
// names.
func WithoutLaunch(env []string, prefixes ...string) []string {
	prefixes = append(prefixes, "OMPI_COMM_WORLD_", "PMI_", "PMI2_", "PMIX_", "HYDI_", "MPI_LOCAL")
	if Lookup(env)("OMPI_COMM_WORLD_SIZE") != "" {
		prefixes = append(prefixes, "OMPI_")
	}
	return slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		return slices.ContainsFunc(prefixes,
			func(prefix string) bool { return strings.HasPrefix(line, prefix) })
	})
}
