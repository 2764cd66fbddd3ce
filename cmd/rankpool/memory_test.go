package main

import (
	"io/fs"
	"math"
	"testing"
)

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]memorySize{
		"0":       {},
		"64GiB":   {bytes: 64 << 30},
		"20 GB":   {bytes: 20e9},
		"1.5MiB":  {bytes: 3 << 19},
		"20%":     {share: 0.2, isShare: true},
		" 100 % ": {share: 1, isShare: true},
		"0%":      {isShare: true},
	} {
		if got, err := parseMemory(text); err != nil || got != want {
			t.Errorf("parseMemory(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "%", "-1", "-1%", "101%", "NaN%", "lots", "9EiB", "12 elephants"} {
		if got, err := parseMemory(text); err == nil {
			t.Errorf("parseMemory(%q) = %+v, want an error", text, got)
		}
	}
}

func FuzzParseMemory(f *testing.F) {
	f.Add("64GiB")
	f.Add("20%")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseMemory(text); err == nil && (m.bytes < 0 || m.share < 0 || m.share > 1 || m.isShare && m.bytes != 0) {
			t.Errorf("parseMemory(%q) = %+v", text, m)
		}
	})
}

// files is a file system of a test.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	text, found := f[name]
	if !found {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func TestMemoryAvailable(t *testing.T) {
	const meminfo = "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n"
	for _, c := range []struct {
		name  string
		files files
		bytes int64
		from  string
	}{
		{"nothing known", files{}, math.MaxInt64, "no limit found"},
		{"no control groups", files{"/proc/meminfo": meminfo}, 4000 << 10, "the machine's available memory"},
		{"v2, a parent binds", files{
			"/proc/meminfo":                          meminfo,
			"/proc/self/cgroup":                      "0::/job/step\n",
			"/sys/fs/cgroup/job/step/memory.max":     "max\n",
			"/sys/fs/cgroup/job/step/memory.current": "700\n",
			"/sys/fs/cgroup/job/memory.max":          "100000\n",
			"/sys/fs/cgroup/job/memory.current":      "30000\n",
			"/sys/fs/cgroup/job/memory.stat":         "anon 1\ninactive_file 10000\n",
		}, 80000, "the memory limit of control group /job"},
		{"v2, over the limit", files{
			"/proc/self/cgroup":             "0::/\n",
			"/sys/fs/cgroup/memory.max":     "100\n",
			"/sys/fs/cgroup/memory.current": "300\n",
		}, 0, "the memory limit of control group /"},
		{"v1", files{
			"/proc/meminfo":     meminfo,
			"/proc/self/cgroup": "5:cpu,cpuacct:/job\n4:memory:/job\n",
			"/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2000000\n",
			"/sys/fs/cgroup/memory/job/memory.usage_in_bytes": "500000\n",
			"/sys/fs/cgroup/memory/job/memory.stat":           "inactive_file 1\ntotal_inactive_file 400000\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"/sys/fs/cgroup/memory/memory.usage_in_bytes":     "500000\n",
		}, 1900000, "the memory limit of control group /job"},
		{"the machine binds", files{
			"/proc/meminfo":                     meminfo,
			"/proc/self/cgroup":                 "0::/job\n",
			"/sys/fs/cgroup/job/memory.max":     "100000000\n",
			"/sys/fs/cgroup/job/memory.current": "0\n",
		}, 4000 << 10, "the machine's available memory"},
		{"garbage", files{"/proc/meminfo": "MemAvailable: lots\n", "/proc/self/cgroup": "x\n0:\n::\n"}, math.MaxInt64, "no limit found"},
	} {
		bytes, from := memoryLimits{c.files.read}.available()
		if bytes != c.bytes || from != c.from {
			t.Errorf("%s: available() = %d, %q, want %d, %q", c.name, bytes, from, c.bytes, c.from)
		}
	}
	if bytes, from := memoryAvailable(); bytes <= 0 || from == "no limit found" {
		t.Errorf("memoryAvailable() = %d, %q on this machine", bytes, from)
	}
}
