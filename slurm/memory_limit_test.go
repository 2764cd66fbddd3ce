package slurm

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// files is a file system for tests.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	text, found := f[name]
	if !found {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

// group adds the files of a version 2 control group below the mount, and returns f.
func (f files) group(name, limit, usage, stat string) files {
	f["/sys/fs/cgroup"+name+"/memory.max"] = limit + "\n"
	f["/sys/fs/cgroup"+name+"/memory.current"] = usage + "\n"
	f["/sys/fs/cgroup"+name+"/memory.stat"] = stat
	return f
}

func TestReadMemory(t *testing.T) {
	const meminfo = "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    4000 kB\n"
	const none = math.MaxInt64
	for _, c := range []struct {
		name  string
		files files
		env   string
		used  int64
		want  Memory
	}{
		{"nothing known", files{}, "", 0, Memory{none, none, "no limit found"}},
		{
			"no control groups",
			files{"/proc/meminfo": meminfo},
			"", 0,
			Memory{9000 << 10, 4000 << 10, "the machine's available memory"},
		},
		{
			"v2, a parent binds", files{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/job/step\n"}.
				group("/job/step", "max", "700", "").group(
				"/job", "100000", "30000", "anon 1\ninactive_file 10000\nshmem 9\n"),
			"", 0,
			Memory{100000, 80000, "the memory limit of control group /job"},
		},
		{
			"v2, file pages that are clean count as free", files{"/proc/self/cgroup": "0::/\n"}.
				group("", "1000", "900", "file 600\nshmem 100\nfile_dirty 40\nfile_writeback "+
					"10\ninactive_file 300\nactive_file 200\n"),
			"", 0,
			Memory{1000, 550, "the memory limit of control group /"},
		},
		{
			"v2, over the limit", files{"/proc/self/cgroup": "0::/\n"}.group("", "100", "300", ""), "", 0,
			Memory{100, 0, "the memory limit of control group /"},
		},
		{
			"v2, memory.high", files{
				"/proc/self/cgroup": "0::/j\n", "/sys/fs/cgroup/j/memory.high": "800\n",
			}.group("/j", "1000", "300", ""),
			"", 0,
			Memory{800, 500, "the memory limit of control group /j"},
		},
		{"v1", files{
			"/proc/meminfo":     meminfo,
			"/proc/self/cgroup": "5:cpu,cpuacct:/job\n4:hugetlb,memory:/job\n0::/\n",
			"/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2000000\n",
			"/sys/fs/cgroup/memory/job/memory.usage_in_bytes": "500000\n",
			"/sys/fs/cgroup/memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file " +
				"300000\ntotal_active_file 110000\ntotal_dirty 10000\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"/sys/fs/cgroup/memory/memory.usage_in_bytes": "500000\n",
		}, "", 0, Memory{2000000, 1900000, "the memory limit of control group /job"}},
		{"v1 without a limit", files{
			"/proc/self/cgroup":                           "4:memory:/\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"/sys/fs/cgroup/memory/memory.usage_in_bytes": "500000\n",
		}, "", 0, Memory{none, none, "no limit found"}},
		{
			"the machine binds", files{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/job\n"}.group(
				"/job", "100000000", "0", ""), "", 0,
			Memory{9000 << 10, 4000 << 10, "the machine's available memory"},
		},
		{
			"Slurm, without a control group",
			files{"/proc/meminfo": meminfo},
			"SLURM_JOB_ID=7 SLURM_MEM_PER_NODE=2", 1 << 20,
			Memory{2 << 20, 1 << 20, "SLURM_MEM_PER_NODE"},
		},
		{
			"Slurm, with the job's control group", files{"/proc/self/cgroup": "0::/s/job_7/step_0/user\n"}.
				group("/s/job_7/step_0/user", "max", "100", "").group(
				"/s/job_7", "max", "3000", "inactive_file 1000\n").group("/s", "max", "99999", ""),
			"SLURM_JOB_ID=7 SLURM_MEM_PER_NODE=2", 500,
			Memory{2 << 20, 2<<20 - 2000, "SLURM_MEM_PER_NODE"},
		},
		{
			"all of the node",
			files{"/proc/meminfo": meminfo},
			"SLURM_MEM_PER_NODE=0", 0,
			Memory{9000 << 10, 4000 << 10, "the machine's available memory"},
		},
		{
			"for each CPU",
			files{},
			"SLURM_MEM_PER_CPU=3 SLURM_CPUS_ON_NODE=4", 0,
			Memory{12 << 20, 12 << 20, "SLURM_MEM_PER_CPU"},
		},
		{
			"with a unit, as a script may set it for srun",
			files{},
			"SLURM_MEM_PER_NODE=2G", 0,
			Memory{2 << 30, 2 << 30, "SLURM_MEM_PER_NODE"},
		},
		{
			"with a unit, for each CPU",
			files{},
			"SLURM_MEM_PER_CPU=512kb SLURM_CPUS_ON_NODE=4", 0,
			Memory{2 << 20, 2 << 20, "SLURM_MEM_PER_CPU"},
		},
		{
			"for each GPU",
			files{},
			"SLURM_MEM_PER_GPU=3 SLURM_GPUS_ON_NODE=2", 0,
			Memory{6 << 20, 6 << 20, "SLURM_MEM_PER_GPU"},
		},
		{
			"for each of an unknown number",
			files{},
			"SLURM_MEM_PER_GPU=3", 0,
			Memory{none, none, "no limit found"},
		},
		{
			"overflow",
			files{},
			"SLURM_MEM_PER_CPU=9223372036854775807 SLURM_CPUS_ON_NODE=4", 0,
			Memory{none, none, "no limit found"},
		},
		{
			"garbage",
			files{
				"/proc/meminfo":     "MemTotal: 9 kB\nMemAvailable: lots\nMemAvailable\n",
				"/proc/self/cgroup": "x\n0:\n::\n",
			},
			"SLURM_MEM_PER_NODE=lots", 0,
			Memory{none, none, "no limit found"},
		},
		{
			"more free than there is",
			files{"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 10 kB\n"},
			"", 0,
			Memory{9 << 10, 9 << 10, "the machine's available memory"},
		},
	} {
		env := variablesOf(strings.Fields(c.env))
		if got := ReadMemory(c.files.read, env.get, c.used); got != c.want {
			t.Errorf("%s: ReadMemory = %+v, want %+v", c.name, got, c.want)
		}
	}
	if m := ReadMemory(os.ReadFile, variables{}.get, 0); m.FreeBytes <= 0 ||
		m.FreeBytes >= m.LimitBytes || m.Limit == "no limit found" {
		t.Errorf("ReadMemory = %+v on this machine", m)
	}
}

// TestMemoryOfUnevenNodes checks that a node gets the memory of its own CPUs, not those of its
// step.
func TestMemoryOfUnevenNodes(t *testing.T) {
	if got := ReadMemory(files{}.read, environment(t, "uneven"), 0); got.LimitBytes != 36*1000<<20 {
		t.Errorf("ReadMemory = %+v, want 36 times 1000 MiB", got)
	}
}

// TestReadMemoryLimits checks that every limit is returned, not only the one with the least left.
func TestReadMemoryLimits(t *testing.T) {
	f := files{
		"/proc/self/cgroup": "0::/a/b\n",
		"/proc/meminfo":     "MemTotal: 9 kB\nMemAvailable: 5 kB\n",
	}.
		group("/a/b", "500", "100", "").group("/a", "400", "300", "").group("", "max", "300", "")
	got := ReadMemoryLimits(f.read, variables{"SLURM_MEM_PER_NODE": "1"}.get, 0)
	want := "[{500 400 the memory limit of control group /a/b} {400 100 the memory limit of " +
		"control group /a} " +
		"{1048576 1048576 SLURM_MEM_PER_NODE} {9216 5120 the machine's available memory}]"
	if fmt.Sprint(got) != want {
		t.Errorf("ReadMemoryLimits = %v, want %s", got, want)
	}
}

// TestMemoryIsWithinBounds feeds any text as any file and variable.
func TestMemoryIsWithinBounds(t *testing.T) {
	number := rapid.OneOf(rapid.Just("max"), rapid.StringMatching(`-?[0-9]{0,20}`),
		rapid.Just("9223372036854775807"))
	rapid.Check(t, func(t *rapid.T) {
		read := func(name string) ([]byte, error) {
			switch name {
			case "/proc/self/cgroup":
				return []byte(rapid.StringMatching(`(0:|4:memory):/[a-z./]{0,9}\n?`).Draw(t, name)), nil
			case "/proc/meminfo":
				return []byte("MemTotal: " + number.Draw(t, name) + " kB\nMemAvailable: " +
					number.Draw(t, name) + " kB\n"), nil
			}
			if strings.HasSuffix(name, "stat") {
				return []byte("inactive_file " + number.Draw(t, name) + "\nfile_dirty " + number.Draw(t, name)),
					nil
			}
			return []byte(number.Draw(t, name)), nil
		}
		m := ReadMemory(read, func(name string) string { return number.Draw(t, name) }, 0)
		if m.FreeBytes < 0 || m.LimitBytes < m.FreeBytes || m.Limit == "" {
			t.Fatalf("ReadMemory = %+v", m)
		}
	})
}
