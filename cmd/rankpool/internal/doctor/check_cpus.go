package doctor

import "strings"

// checkCPUs checks the process's affinity, and how many threads Go uses.
func checkCPUs(env *Env) []Finding {
	allowed, threads := env.Machine.CPUs()
	const advice = "give the ranks CPUs: mpirun --bind-to none, or srun --cpus-per-task=N " +
		"--cpu-bind=none"
	switch {
	case allowed == 1 && firstLine(env, "/sys/devices/system/cpu/online") != "0":
		return warning("bound to one CPU, on which MPI's polling and the reads of storage take turns",
			advice)
	case threads < min(2, allowed):
		return warning("{} CPUs may be used, but the control group or GOMAXPROCS gives Go one at a time",
			advice, count(allowed))
	}
	return good("CPUs that may be used: {}", count(allowed))
}

// firstLine returns the first line of a small file, "" if it cannot be read.
func firstLine(env *Env, path string) string {
	text, _ := env.Machine.ReadFile(path) // a missing file has no line
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}
