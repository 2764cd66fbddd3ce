package slowfs

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const everySetting = `
seed = 7
open_latency = "2ms"
read_latency = "100us"
entry_latency = "10us"
stat_latency = "1ms"
bandwidth = "200MB"
target_bandwidth = 50000000
targets = 8
stripe = "1MiB"
open_rate = 5000.5
entry_timeout = "1s"
attr_timeout = "2s"
page_cache = true
keep_cache = true

[[rules]]
match = "*.tar"
op = "read"
targets = [3, 5]
after = "1s"
during = "2s"
nth = 2
times = 3
probability = 0.25
error = "EIO"
stall = "30s"

[[rules]]
error = "ESTALE"
`

var everything = Config{
	Seed: 7, OpenLatency: 2 * ms, ReadLatency: ms / 10, EntryLatency: ms / 100, StatLatency: ms,
	Bandwidth: 200e6, TargetBandwidth: 50e6, Targets: 8, Stripe: 1 << 20, OpenRate: 5000.5,
	EntryTimeout: time.Second, AttrTimeout: 2 * time.Second, PageCache: true, KeepCache: true,
	Rules: []Rule{
		{
			Match: "*.tar", Op: Read, Targets: []int{3, 5}, After: time.Second, During: 2 * time.Second,
			Nth: 2, Times: 3, Probability: 0.25, Error: "EIO", Stall: 30 * time.Second,
		},
		{Error: "ESTALE"},
	},
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slow.toml")
	if err := os.WriteFile(path, []byte(everySetting), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || !reflect.DeepEqual(got, everything) {
		t.Errorf("a file: %+v, %v", got, err)
	}
	got, err = Load(path, `bandwidth = "1GB"`,
		`rules = [{match = "x/*", op = "open", error = "ENOENT"}]`)
	want := everything
	want.Bandwidth, want.Rules = 1e9, []Rule{{Match: "x/*", Op: Open, Error: "ENOENT"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("settings over a file: %+v, %v", got, err)
	}
	if got, err := Load(""); err != nil || !reflect.DeepEqual(got, Config{}) {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	if _, err := Load(path + "x"); err == nil || !strings.HasPrefix(err.Error(), "slowfs: ") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestLoadRefusesNonsense(t *testing.T) {
	for setting, says := range map[string]string{
		`speed = 1`:           "unknown setting",
		`bandwidth = "quick"`: "not a size",
		`bandwidth = -1`:      "bandwidth is negative",
		`bandwidth = true`:    "not a size",
		`open_latency = "2"`:  "",
		`targets = -1`:        "targets is negative",
		`open_rate = -0.5`:    "open_rate",
		`open_rate = nan`:     "open_rate",

		`rules = [{op = "write", error = "EIO"}]`:                     "unknown op",
		`rules = [{error = "EWHAT"}]`:                                 "unknown error",
		`rules = [{error = "EIO", match = "[a"}]`:                     "match",
		`rules = [{error = "EIO", targets = [1]}]`:                    "target 1",
		`rules = [{match = "a"}]`:                                     "does nothing",
		`rules = [{error = "EIO", probability = 1.5}]`:                "probability",
		`rules = [{error = "EIO", nth = -1}]`:                         "nth",
		`rules = [{stall = "-1s"}]`:                                   "must not be negative",
		`rules = [{error = "EIO", op = "open", targets = [0]}]`:       "never applies",
		`rules = [{error = "EIO"}, {error = "EIO", color = "green"}]`: "unknown setting",
	} {
		if _, err := Load("", setting); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.HasPrefix(err.Error(), "slowfs: ") {
			t.Errorf("%s: %v, want an error with %q", setting, err, says)
		}
	}
}
