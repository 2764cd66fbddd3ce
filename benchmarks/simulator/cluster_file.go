package simulator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"rankpool/benchmarks/clusters"
	"rankpool/scheduler/systems"
)

// LoadCluster reads a cluster file: one of those shipped, by its name without ".toml", or any file
// by a path, which ends in ".toml" or has a slash. It returns an error, with file, line and key,
// for an unknown name, for a key that is unknown, missing or out of range, and for a syntax error.
func LoadCluster(nameOrPath string) (*Cluster, error) {
	text, file, err := readCluster(nameOrPath)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	c, err := parseCluster(text)
	if err != nil {
		return nil, fmt.Errorf("simulator: %s: %w", file, err)
	}
	return c, nil
}

func readCluster(nameOrPath string) (text, file string, err error) {
	if strings.HasSuffix(nameOrPath, ".toml") ||
		strings.ContainsRune(filepath.ToSlash(nameOrPath), '/') {
		b, err := os.ReadFile(nameOrPath)
		return string(b), nameOrPath, err
	}
	file = nameOrPath + ".toml"
	b, err := clusters.Files.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no cluster is called %q%s; there are %s, and files whose name ends "+
			"in .toml", nameOrPath, systems.Meant(nameOrPath, ClusterNames()),
			strings.Join(ClusterNames(), ", "))
	}
	return string(b), file, err
}

// ClusterNames returns the names of the clusters that are shipped, sorted.
func ClusterNames() []string {
	files, _ := fs.Glob(clusters.Files, "*.toml") // the pattern is valid
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".toml")
	}
	return files
}

func parseCluster(text string) (*Cluster, error) {
	c := new(Cluster)
	meta, err := toml.Decode(text, c)
	if err != nil {
		return nil, err // It names line and key.
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		key := unknown[0].String()
		return nil, fmt.Errorf("line %d: unknown key %s", lineOf(text, key), key)
	}
	k := &keys{text: text, meta: &meta}
	c.check(k)
	return c, k.err
}

// check finds the first key that is out of range. The ranges are wide: they exist to catch wrong
// units. Bandwidths below 1 MB/s and above 10 TB/s, and latencies above a second, are errors.
func (c *Cluster) check(k *keys) {
	const slow, fast = 1_000_000, 10_000_000_000_000
	inRange(k, "sample_bytes", c.SampleBytes, 1, 1<<36)
	inRange(k, "trainer.batch_size", c.Trainer.BatchSize, 1, 1<<20)
	inRange(k, "trainer.step", c.Trainer.Step, 1, time.Hour)
	inRange(k, "trainer.reduce", c.Trainer.Reduce, 0, time.Hour)
	inRange(k, "loader.workers", c.Loader.Workers, 1, 1024)
	inRange(k, "loader.prefetch_factor", c.Loader.PrefetchFactor, 1, 1024)
	inRange(k, "storage.curve", len(c.Storage.Curve), 1, 1000)
	before := int64(0)
	for _, p := range c.Storage.Curve {
		inRange(k, "storage.curve", p[0], before+1, 100_000)
		inRange(k, "storage.curve", p[1], slow, fast)
		before = p[0]
	}
	inRange(k, "storage.open_latency", c.Storage.OpenLatency, 0, time.Second)
	inRange(k, "storage.read_latency", c.Storage.ReadLatency, 0, time.Second)
	inRange(k, "storage.opens_per_second", c.Storage.OpensPerSecond, 1, 1_000_000_000)
	inRange(k, "storage.targets", c.Storage.Targets, 1, 100_000)
	inRange(k, "storage.target_bytes_per_second", c.Storage.TargetBytesPerSecond, slow, fast)
	inRange(k, "network.link_bytes_per_second", c.Network.LinkBytesPerSecond, slow, fast)
	inRange(k, "network.latency", c.Network.Latency, 0, time.Second)
	inRange(k, "memory.bytes_per_second", c.Memory.BytesPerSecond, slow, fast)
	inRange(k, "planner.draw", c.Planner.Draw, 0, time.Second)
}

// keys is a file whose values are checked.
type keys struct {
	text string
	meta *toml.MetaData
	err  error // the first one
}

// required are the keys that every file must have; a file may omit the others, and then has no such
// limit or latency.
const required = " sample_bytes trainer.batch_size trainer.step loader.workers " +
	"loader.prefetch_factor storage.curve "

// inRange checks that a value is in [low, high].
func inRange[T int | int64 | time.Duration](k *keys, key string, value, low, high T) {
	defined := k.meta.IsDefined(strings.Split(key, ".")...)
	switch {
	case k.err != nil, defined && low <= value && value <= high:
	case defined:
		k.err = fmt.Errorf("line %d: %s is %v, which is not in [%v, %v]", lineOf(k.text, key), key,
			value, low, high)
	case strings.Contains(required, " "+key+" "):
		k.err = fmt.Errorf("%s is missing", key)
	}
}

// lineOf finds the line of "table.key", or of the table; 0 if it is written in another way, such as
// an inline table.
func lineOf(text, dotted string) int {
	table := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			table, _, _ = strings.Cut(name, "]")
			if table += "."; table == dotted+"." {
				return i + 1
			}
			continue
		}
		if key, _, ok := strings.Cut(line, "="); ok && table+strings.TrimSpace(key) == dotted {
			return i + 1
		}
	}
	return 0
}
