package doctor

import (
	"errors"
	"fmt"
	"strings"

	"rankpool/nvml"
	"rankpool/slurm"
)

const (
	writable   = 2 | 1 // for Machine.Access: write and search
	readable   = 4
	maxSocket  = 107     // sun_path has 108 bytes, the last one 0. Source: Linux, unix(7).
	littleDisk = 1 << 30 // with less, a node-local folder is useless for data
)

// checkRuntime checks the folder for the sockets of the ranks.
func checkRuntime(env *Env) []Finding {
	r := env.Runtime
	switch {
	case r.Failure != nil:
		return bad(r.Failure.Error(), "name a folder that can be written to with --runtime-dir")
	case len(r.SocketPath) > maxSocket:
		return bad(fmt.Sprintf("a socket's path in %s would have %d bytes, and %d are possible", r.Base,
			len(r.SocketPath), maxSocket), "name a shorter folder with --runtime-dir")
	}
	if fs, err := env.Machine.FileSystem(r.Base); err == nil && fs.Reach == Shared {
		return warning(fmt.Sprintf("sessions are in %s, which is on %s: sockets and locks are slow or "+
			"fail there", r.Base, fs.Type), "name a node-local folder with --runtime-dir")
	}
	return good(fmt.Sprintf("sessions are in %s, a socket's path has at most %d of %d bytes",
		r.Base, len(r.SocketPath), maxSocket))
}

// checkScratch checks the folder that staging and the tier would use.
func checkScratch(env *Env) []Finding {
	const advice = "name another node-local folder in $TMPDIR"
	dir, rule, err := slurm.Scratch(env.getenv,
		func(dir string) error { return env.Machine.Access(dir, writable) })
	if err != nil {
		return warning(err.Error(), advice)
	}
	fs, err := env.Machine.FileSystem(dir)
	if err != nil {
		return warning(fmt.Sprintf("%s (%s): %v", dir, rule, err), advice)
	}
	where := verbatim(fmt.Sprintf("%s (%s, %s)", dir, rule, fs.Type))
	switch {
	case fs.Reach == Shared:
		return warning(where+" is not node-local: staging there gains nothing", advice)
	case fs.FreeBytes < littleDisk, fs.FilesTotal > 0 && fs.FilesFree == 0:
		return warning(where+" has room for {} in {} files", "make room, or "+advice,
			bytesOf(fs.FreeBytes), count(int(fs.FilesFree)))
	}
	if err := env.Machine.SetXattr(dir); err != nil {
		return warning(fmt.Sprintf("%s has {} free, but no extended attributes: %s", where,
			verbatim(err.Error())),
			"\"rankpool stage\" keeps checksums in them; without, a second run compares sizes "+
				"and times only", bytesOf(fs.FreeBytes))
	}
	return good(where+" has {} free, and extended attributes", bytesOf(fs.FreeBytes))
}

// checkTier checks the folder of --tier.
func checkTier(env *Env) []Finding {
	tier := env.Tier
	if tier.Unusable != nil {
		return warning(verbatim(tier.Unusable.Error())+"; training continues without a tier",
			"name a folder on a local disk of the node: for keep and share the centre makes one with mode "+
				"1777 and owner root, for keep one of yours will do; see docs/tier.md")
	}
	fs, err := env.Machine.FileSystem(tier.Dir)
	if err != nil {
		return warning(verbatim(err.Error()), "see whether the disk is mounted")
	}
	has := verbatim(fmt.Sprintf("%s (%s)", tier.Dir, fs.Type)) + " has {} free"
	if fs.FreeBytes < tier.Bytes {
		return warning(has+", and {} may be filled: copies that are there count as filled",
			"give a smaller size (--tier DIR:SIZE), or make room", bytesOf(fs.FreeBytes),
			bytesOf(tier.Bytes))
	}
	return good(has, bytesOf(fs.FreeBytes))
}

// jobGPUs returns this process's GPUs according to the environment, and the variable; "" if there
// is none.
func jobGPUs(env *Env) (job slurm.GPUs, given string) {
	job = slurm.DetectGPUs(env.Machine.LookupEnv)
	if job.Count > 0 {
		given = fmt.Sprintf("%s=%s", job.Source, env.getenv(job.Source))
	}
	return job, given
}

// checkGPU checks the GPUs whose statistics the rank would read. rankpool works without them, but
// training fails if a GPU of the job does not respond.
func checkGPU(env *Env) []Finding {
	gpus, err := env.GPUs()
	job, given := jobGPUs(env)
	switch {
	case errors.Is(err, nvml.ErrNotFound) &&
		(job.Source == "ROCR_VISIBLE_DEVICES" || job.Source == "HIP_VISIBLE_DEVICES"):
		return good(fmt.Sprintf("the job's GPUs (%s) are AMD's, whose statistics are not read", given))
	case err != nil && given != "":
		return warning(fmt.Sprintf("the job has GPUs (%s), but NVIDIA's library does not "+
			"tell of them: %v", given, err),
			"training may still see them; their use is missing in \"rankpool top\" and the report. In a "+
				"container, start it with its GPU option")
	case errors.Is(err, nvml.ErrNotFound):
		return good("no NVIDIA library: statistics of GPUs are off")
	case err != nil:
		return warning(fmt.Sprintf("NVIDIA's library does not answer: %v", err),
			"see whether nvidia-smi works on this node")
	case len(gpus.Names)+len(gpus.Lost) == 0 && given != "":
		return warning(fmt.Sprintf("the job has GPUs (%s), but NVIDIA's library sees none", given),
			"ask for them in the step too: srun --gpus-per-node=N")
	case len(gpus.Names)+len(gpus.Lost) == 0:
		return good("NVIDIA's library is there, and no GPU for this process")
	}
	var found []Finding
	if len(gpus.Names) > 0 {
		found = append(found, good("GPUs: "+listNames(gpus.Names))...)
	}
	for _, lost := range gpus.Lost {
		if given == "" {
			found = append(found, warning(lost.Error(),
				"see what nvidia-smi reports; a job that gets it fails")...)
			continue
		}
		found = append(found, bad(fmt.Sprintf("%v, and the job has it (%s)", lost, given),
			"see what nvidia-smi reports on this node, and leave the node out: sbatch --exclude=NODE")...)
	}
	return found
}

// listNames joins equal names: "4 × H100".
func listNames(names []string) string {
	var parts []string
	for i := 0; i < len(names); {
		n := 1
		for i+n < len(names) && names[i+n] == names[i] {
			n++
		}
		parts = append(parts, fmt.Sprintf("%d × %s", n, names[i]))
		i += n
	}
	return strings.Join(parts, ", ")
}
