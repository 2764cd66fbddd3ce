package slowfs

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"rankpool/staging/sizes"
)

// Config holds the delays, limits and faults of the emulated storage. The zero value adds none. The
// tags are the keys of the TOML file; durations are written "2ms", sizes and rates "200MB", "1MiB"
// or a number.
type Config struct {
	Seed uint64 `toml:"seed"` // of all random numbers

	OpenLatency time.Duration `toml:"open_latency"` // of each open of a file
	// of each read; the kernel splits reads of more than 1 MiB
	ReadLatency  time.Duration `toml:"read_latency"`
	EntryLatency time.Duration `toml:"entry_latency"` // of each entry of a folder listing
	// of each lookup of a name or its attributes that the kernel's caches do not answer
	StatLatency time.Duration `toml:"stat_latency"`

	// of all targets together, in bytes per second; 0: unlimited
	Bandwidth Bytes `toml:"bandwidth"`
	// of each target, in bytes per second; 0: unlimited
	TargetBandwidth Bytes `toml:"target_bandwidth"`
	Targets         int   `toml:"targets"` // number of targets; 0: one
	// files are cut into pieces of this size on successive targets; 0: a file has one target
	Stripe Bytes `toml:"stripe"`
	// opens per second of the metadata server; 0: unlimited
	OpenRate float64 `toml:"open_rate"`

	// how long the kernel may keep names; 0: it asks each time
	EntryTimeout time.Duration `toml:"entry_timeout"`
	// how long the kernel may keep attributes; 0: it asks each time
	AttrTimeout time.Duration `toml:"attr_timeout"`
	// cache pages while a file is open; false: every read comes here as requested (direct I/O)
	PageCache bool `toml:"page_cache"`
	// with page_cache: keep them after it is closed too, as long as there is memory
	KeepCache bool `toml:"keep_cache"`

	Rules []Rule `toml:"rules"` // all that match an access apply; the first error counts
}

// Rule makes some accesses fail or stall. Conditions that are left out always hold. After ESTALE,
// Linux itself looks up a path and opens it again, once, so a program sees that error only if two
// successive accesses get it.
type Rule struct {
	// a glob (path.Match) for the path below the root, or, without a slash, for its last name
	Match   string        `toml:"match"`
	Op      Op            `toml:"op"`      // "open", "read", "list" or "stat"
	Targets []int         `toml:"targets"` // reads that touch one of these targets, counted from 0
	After   time.Duration `toml:"after"`   // starting at this time after the start
	During  time.Duration `toml:"during"`  // for this long; 0: forever

	// starting with the nth such access of each file; 0 is 1, the first
	Nth         int     `toml:"nth"`
	Times       int     `toml:"times"`       // this many of these accesses of each file; 0: all
	Probability float64 `toml:"probability"` // each of these with this probability; 0 is 1

	Error string        `toml:"error"` // the name of the resulting error: EIO, ESTALE, ENOENT, …
	Stall time.Duration `toml:"stall"` // how much later it is answered
}

// Bytes is a size in bytes, or a rate in bytes per second. Its text is as for sizes.Rate.
type Bytes int64

// UnmarshalText parses "200MB", "1MiB" or "4MB/s".
func (b *Bytes) UnmarshalText(text []byte) error {
	n, err := sizes.Rate(string(text))
	*b = Bytes(n)
	return err
}

// UnmarshalTOML also accepts a number.
func (b *Bytes) UnmarshalTOML(value any) error {
	switch v := value.(type) {
	case int64:
		*b = Bytes(v)
		return nil
	case string:
		return b.UnmarshalText([]byte(v))
	}
	return fmt.Errorf("%v is not a size such as \"200MB\" or 4096", value)
}

// Load reads the TOML file at path, if path is not "", and then each line of settings, such as
// `bandwidth = "200MB"`, which override the file. It fails for unknown keys and for invalid values.
func Load(path string, settings ...string) (Config, error) {
	var c Config
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("slowfs: %w", err)
		}
		if err := c.decode(string(text)); err != nil {
			return c, fmt.Errorf("slowfs: %s: %w", path, err)
		}
	}
	if err := c.decode(strings.Join(settings, "\n")); err != nil {
		return c, fmt.Errorf("slowfs: settings: %w", err)
	}
	return c, c.Check()
}

func (c *Config) decode(text string) error {
	before := c.Rules
	c.Rules = nil // Otherwise new rules would be decoded over old ones, and keep old fields.
	meta, err := toml.Decode(text, c)
	if err != nil {
		return err
	}
	if !meta.IsDefined("rules") {
		c.Rules = before
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return fmt.Errorf("unknown setting %q", unknown[0])
	}
	return nil
}

// Check returns an error that describes an invalid value, or nil.
func (c Config) Check() error {
	numbers := map[string]int64{
		"open_latency": int64(c.OpenLatency), "read_latency": int64(c.ReadLatency),
		"entry_latency": int64(c.EntryLatency),
		"stat_latency":  int64(c.StatLatency), "entry_timeout": int64(c.EntryTimeout),
		"attr_timeout": int64(c.AttrTimeout),
		"bandwidth":    int64(c.Bandwidth), "target_bandwidth": int64(c.TargetBandwidth),
		"targets": int64(c.Targets), "stripe": int64(c.Stripe),
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[name] < 0 {
			return fmt.Errorf("slowfs: %s is negative", name)
		}
	}
	if !(c.OpenRate >= 0) {
		return fmt.Errorf("slowfs: open_rate must be at least 0, not %v", c.OpenRate)
	}
	for i, r := range c.Rules {
		if err := r.check(max(1, c.Targets)); err != nil {
			return fmt.Errorf("slowfs: rule %d: %w", i+1, err)
		}
	}
	return nil
}

func (r Rule) check(targets int) error {
	if _, err := path.Match(r.Match, ""); err != nil {
		return fmt.Errorf("match %q: %w", r.Match, err)
	}
	if r.Error != "" && errnoOf(r.Error) == 0 {
		return fmt.Errorf("unknown error %q; use a name such as EIO", r.Error)
	}
	for _, t := range r.Targets {
		if t < 0 || t >= targets {
			return fmt.Errorf("target %d is none of the %d, counted from 0", t, targets)
		}
	}
	switch {
	case r.Error == "" && r.Stall == 0:
		return fmt.Errorf("it has neither error nor stall, so it does nothing")
	case r.After < 0 || r.During < 0 || r.Stall < 0:
		return fmt.Errorf("after, during and stall must not be negative")
	case r.Nth < 0 || r.Times < 0:
		return fmt.Errorf("nth and times must not be negative")
	case !(r.Probability >= 0 && r.Probability <= 1):
		return fmt.Errorf("probability %v is not from 0 to 1", r.Probability)
	case r.Op > Stat:
		return fmt.Errorf("unknown op %d", r.Op)
	case len(r.Targets) > 0 && r.Op != Any && r.Op != Read:
		return fmt.Errorf("only reads have targets, so it never applies")
	}
	return nil
}
