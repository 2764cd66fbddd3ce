package slurm

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// GPUs describes which GPUs a process may use, according to its environment.
type GPUs struct {
	// Count is the number of GPUs that the process may use; Absent if nothing limits it, so that it
	// sees all GPUs of the node.
	Count int
	// OnNode is the number of the job's GPUs on this node, which its tasks share; Absent if Slurm does
	// not report it.
	OnNode int
	// Visible lists them if the environment does, as ParseDevices does. Slurm's own lists count the
	// GPUs of the node, CUDA_VISIBLE_DEVICES those of the control group.
	Visible []string
	Source  string // Source is the variable that Count comes from; "" for none.
}

// The variables that limit a process, in order of precedence: those of the GPU vendor's library,
// then what Slurm gave the step and the job.
//
// Source: CUDA C++ Programming Guide, CUDA environment variables; ROCm, GPU isolation techniques;
// srun(1) and sbatch(1).
var deviceVariables = []string{
	"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
	"HIP_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS",
}

// DetectGPUs reads the GPUs of this process from the environment that lookup returns (os.LookupEnv,
// or a test's). A variable that is set and empty means no GPU; one that is not set means no limit.
func DetectGPUs(lookup func(string) (string, bool)) GPUs {
	getenv := func(name string) string {
		value, _ := lookup(name)
		return value
	}
	gpus := GPUs{Count: Absent, OnNode: gpusOnNode(getenv)}
	for i, name := range deviceVariables {
		list, set := lookup(name)
		if !set || i >= 3 && list == "" { // Slurm leaves its lists empty if it has no names
			continue
		}
		gpus.Visible, gpus.Source = ParseDevices(list), name
		gpus.Count = len(gpus.Visible)
		return gpus
	}
	if n := number(getenv, "SLURM_GPUS_ON_NODE"); n != Absent {
		gpus.Count, gpus.Source = n, "SLURM_GPUS_ON_NODE"
	} else if gpus.OnNode != Absent {
		gpus.Count, gpus.Source = gpus.OnNode, "SLURM_GPUS_PER_NODE"
	}
	return gpus
}

// gpusOnNode returns the largest number in any variable: a step may have fewer GPUs than its job,
// or none.
func gpusOnNode(getenv func(string) string) int {
	gpus := number(getenv, "SLURM_GPUS_ON_NODE")
	for _, name := range []string{"SLURM_JOB_GPUS", "SLURM_STEP_GPUS"} {
		if list := getenv(name); list != "" {
			gpus = max(gpus, len(ParseDevices(list)))
		}
	}
	asked := 0 // from --gpus-per-node: "4", "a100:4", or several kinds
	for part := range strings.SplitSeq(getenv("SLURM_GPUS_PER_NODE"), ",") {
		n, err := strconv.Atoi(part[strings.LastIndexByte(part, ':')+1:])
		if err != nil || n < 0 || n > math.MaxInt32 {
			return gpus
		}
		asked += n
	}
	return max(gpus, asked)
}

// ParseDevices parses a list such as "0,1", "0-3", "GPU-8932f937-…" or "MIG-…", in
// CUDA_VISIBLE_DEVICES or one of Slurm's lists. A device is an index, from 0, among the GPUs that
// the driver lists; a GPU's UUID or a prefix, which stands for the first GPU that it matches; or an
// instance of a partitioned GPU: "MIG-" and its UUID or, with a driver before 470,
// "MIG-GPU-8932f937-…/1/0".
//
// As for CUDA, the list ends before the first entry that is malformed, names no device ("-1",
// "NoDevFiles", "none"), or is a duplicate. It is nil for the empty list.
func ParseDevices(list string) []string {
	var devices []string
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(list, ",") {
		parsed := parseDevice(strings.TrimSpace(entry))
		if parsed == nil {
			break
		}
		for _, device := range parsed {
			if seen[device] {
				return devices
			}
			seen[device] = true
			devices = append(devices, device)
		}
	}
	return devices
}

// maxDevices bounds a range of indices; Linux has 256 minor numbers for /dev/nvidia.
const maxDevices = 256

// parseDevice parses one entry. It returns nil if the entry names no device, and several devices
// for a range, which only Slurm writes.
func parseDevice(entry string) []string {
	low, high, isRange := strings.Cut(entry, "-")
	if from, err := strconv.ParseUint(low, 10, 16); err == nil {
		to := from
		if isRange {
			to, err = strconv.ParseUint(high, 10, 16)
		}
		if err != nil || to < from || to-from >= maxDevices {
			return nil
		}
		var devices []string
		for i := from; i <= to; i++ {
			devices = append(devices, strconv.FormatUint(i, 10))
		}
		return devices
	}
	if deviceName.MatchString(entry) {
		return []string{entry}
	}
	return nil
}

// deviceName matches what names a device, but for its index: "GPU-" or "MIG-" and a UUID, or the
// beginning of one, and the older form of an instance.
var deviceName = regexp.MustCompile(
	`^(GPU|MIG)-[0-9a-fA-F-]{1,36}$|^MIG-GPU-[0-9a-fA-F-]{1,36}/[0-9]{1,5}/[0-9]{1,5}$`)
