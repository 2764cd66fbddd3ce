package rank

import (
	"os"
	"testing"

	"github.com/spf13/pflag"
)

func TestStorageOptions(t *testing.T) {
	for _, c := range []struct {
		args    []string
		wrong   string // the error of check
		rate    int64
		limited bool
	}{
		{nil, "", 0, false},
		{[]string{"--max-storage-rate", "10GB"}, "", 10e9, true},
		{[]string{"--max-storage-rate", "2GiB/s", "--max-opens", "1500"}, "", 2 << 30, true},
		{[]string{"--max-opens", "0.5"}, "", 0, true},
		{[]string{"--max-storage-rate", "fast"}, `--max-storage-rate: "fast" is not a size such as 64GiB, 1.5GB or 0`, 0, false},
		{
			[]string{"--max-opens", "-1"},
			"--max-opens must be at least 0 files a second, not -1", 0,
			false,
		},
		{
			[]string{"--max-opens", "NaN"},
			"--max-opens must be at least 0 files a second, not NaN",
			0, false,
		},
	} {
		var o StorageOptions
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		o.RegisterLimits(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		err := o.Check()
		if c.wrong != "" {
			if err == nil || err.Error() != c.wrong {
				t.Errorf("%q: %v, want %s", c.args, err, c.wrong)
			}
			continue
		}
		if rate, _ := o.Rate(); err != nil || rate != c.rate || (o.limit(4) != nil) != c.limited {
			t.Errorf("%q: %v, rate %d", c.args, err, rate)
		}
		folder := t.TempDir()
		if err := o.writeLimits(folder, 4); err != nil {
			t.Errorf("%q: %v", c.args, err)
		}
		if written, err := os.ReadDir(folder); err != nil || (len(written) == 1) != c.limited {
			t.Errorf("%q: in the rank's folder are %v, %v", c.args, written, err)
		}
	}
}
