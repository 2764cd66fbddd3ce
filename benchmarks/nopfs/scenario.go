package nopfs

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"rankpool/scheduler/systems"
)

// A Scenario is a machine and a data set.
type Scenario struct {
	Name       string
	Workers    int
	Machine    systems.NoPFSModel
	CapacityMB []float64 // of each tier of a worker: the staging buffer, RAM, SSD, …
	Samples    int
	MeanMB     float64 // of a sample's size
	// of the normal distribution of sizes; sizes below 0 count as 0
	DeviationMB float64
	BatchSize   int // a worker's
	Epochs      int
	Seed        int64 // of the shuffles and of the sizes
}

//go:embed scenarios.toml
var shipped string

// A file is a TOML file of machines and scenarios.
type file struct {
	Machine  map[string]machine `toml:"machine"`
	Scenario map[string]dataSet `toml:"scenario"`
}

type machine struct {
	Workers    int          `toml:"workers"`
	Compute    float64      `toml:"compute"`    // c
	Preprocess float64      `toml:"preprocess"` // β
	Network    float64      `toml:"network"`    // b_c
	PFS        [][2]float64 `toml:"pfs"`        // γ, t(γ)
	Tier       []tier       `toml:"tier"`
}

type tier struct {
	CapacityMB float64 `toml:"capacity_mb"` // d_j
	Threads    int     `toml:"threads"`     // p_j
	Read       float64 `toml:"read"`        // r_j(p_j)
	Write      float64 `toml:"write"`       // w_j(p_j); only w_0 is used
}

type dataSet struct {
	Machine     string  `toml:"machine"`
	Workers     int     `toml:"workers"` // 0: as many as the machine has
	Samples     int     `toml:"samples"`
	MeanMB      float64 `toml:"mean_mb"`
	DeviationMB float64 `toml:"deviation_mb"`
	BatchSize   int     `toml:"batch_size"`
	Epochs      int     `toml:"epochs"`
}

// Names returns the names of the scenarios that are shipped, sorted.
func Names() []string {
	f, err := parse(shipped)
	if err != nil {
		panic("nopfs: scenarios.toml is malformed: " + err.Error() + ".")
	}
	return slices.Sorted(maps.Keys(f.Scenario))
}

// Load returns a scenario: a shipped one, by its name, or the only one in a file whose name ends in
// ".toml". Its fields may be changed; Run checks them.
func Load(nameOrPath string) (*Scenario, error) {
	text, name := shipped, nameOrPath
	if strings.HasSuffix(nameOrPath, ".toml") {
		b, err := os.ReadFile(nameOrPath)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("nopfs: file %s does not exist", nameOrPath)
		} else if err != nil {
			return nil, fmt.Errorf("nopfs: %w", err)
		}
		text, name = string(b), ""
	}
	f, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("nopfs: %s: %w", filepath.Base(nameOrPath), err)
	}
	if name == "" {
		if len(f.Scenario) != 1 {
			return nil, fmt.Errorf("nopfs: %s must have one [scenario.NAME], not %d", nameOrPath,
				len(f.Scenario))
		}
		for only := range f.Scenario {
			name = only
		}
	}
	d, known := f.Scenario[name]
	if !known {
		names := Names()
		return nil, fmt.Errorf("nopfs: no scenario is called %q%s; there are %s, and files whose "+
			"name ends in .toml", name, systems.Meant(name, names), strings.Join(names, ", "))
	}
	m, known := f.Machine[d.Machine]
	if !known {
		return nil, fmt.Errorf("nopfs: scenario %s: machine %s is not defined", name, d.Machine)
	}
	return m.scenario(name, &d), nil
}

func parse(text string) (*file, error) {
	f := new(file)
	meta, err := toml.Decode(text, f)
	if err != nil {
		return nil, err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown key %s", unknown[0])
	}
	return f, nil
}

func (m *machine) scenario(name string, d *dataSet) *Scenario {
	s := &Scenario{
		Name: name, Workers: m.Workers, Samples: d.Samples, MeanMB: d.MeanMB,
		DeviationMB: d.DeviationMB, BatchSize: d.BatchSize, Epochs: d.Epochs,
		Machine: systems.NoPFSModel{Compute: m.Compute, Preprocess: m.Preprocess, Network: m.Network},
	}
	if d.Workers > 0 {
		s.Workers = d.Workers
	}
	for _, p := range m.PFS {
		s.Machine.PFS = append(s.Machine.PFS, systems.NoPFSRate{Clients: p[0], MBps: p[1]})
	}
	for _, t := range m.Tier {
		s.Machine.Tiers = append(s.Machine.Tiers, systems.NoPFSTier{
			ReadMBps: t.Read, WriteMBps: t.Write, Threads: float64(t.Threads),
		})
		s.CapacityMB = append(s.CapacityMB, t.CapacityMB)
	}
	return s
}

// check returns an error that names the first value that is out of range.
func (s *Scenario) check() error {
	m := &s.Machine
	type number struct {
		name             string
		value, low, high float64
	}
	numbers := []number{
		{"workers", float64(s.Workers), 1, 1024},
		{"samples", float64(s.Samples), float64(s.Workers), 1e9},
		{"batch_size", float64(s.BatchSize), 1, 1 << 20},
		{"epochs", float64(s.Epochs), 1, 10_000},
		{"mean_mb", s.MeanMB, 1e-6, 1e6},
		{"deviation_mb", s.DeviationMB, 0, 1e6},
		{"compute", m.Compute, 1e-3, 1e9},
		{"preprocess", m.Preprocess, 1e-3, 1e9},
		{"network", m.Network, 1e-3, 1e9},
		{"number of points of pfs", float64(len(m.PFS)), 1, 1000},
		{"number of tiers", float64(len(m.Tiers)), 1, 10},
	}
	before := 0.0
	for _, p := range m.PFS {
		numbers = append(numbers, number{"number of clients in pfs", p.Clients, before + 1, 1e6},
			number{"bandwidth in pfs", p.MBps, 1e-3, 1e9})
		before = p.Clients
	}
	for j, t := range m.Tiers {
		name := fmt.Sprintf("of tier %d", j)
		numbers = append(numbers, number{"threads " + name, t.Threads, 1, 1024},
			number{"read " + name, t.ReadMBps, 1e-3, 1e9},
			number{"capacity_mb " + name, s.CapacityMB[j], 0, 1e12})
	}
	if len(m.Tiers) > 0 {
		numbers = append(numbers, number{"write of tier 0", m.Tiers[0].WriteMBps, 1e-3, 1e9},
			number{"capacity_mb of tier 0", s.CapacityMB[0], 1e-6, 1e12})
	}
	for _, n := range numbers {
		if math.IsNaN(n.value) || n.value < n.low || n.value > n.high {
			return fmt.Errorf("nopfs: scenario %s: %s must be from %v to %v, not %v", s.Name,
				n.name, n.low, n.high, n.value)
		}
	}
	return nil
}
