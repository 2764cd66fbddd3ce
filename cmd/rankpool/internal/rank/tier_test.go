package rank

import (
	"os"
	"path/filepath"
	"testing"

	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/mpicache"
	"rankpool/mpicache/slab"
	"rankpool/scheduler/draw"
)

func TestParseTier(t *testing.T) {
	for text, want := range map[string]tierPlace{
		"":                     {},
		"/nvme:800GiB":         {"/nvme", memory.Amount{Bytes: 800 << 30}, false, false},
		"scratch:30%":          {"scratch", memory.Amount{Share: 0.3, IsShare: true}, false, false},
		"/of:job:7 /x:2000000": {"/of:job:7 /x", memory.Amount{Bytes: 2e6}, false, false},
		"/nvme:800GiB,keep":    {"/nvme", memory.Amount{Bytes: 800 << 30}, true, false},
		"/nvme:800GiB,share":   {"/nvme", memory.Amount{Bytes: 800 << 30}, true, true},
		"/a,b:30%,keep":        {"/a,b", memory.Amount{Share: 0.3, IsShare: true}, true, false},
	} {
		if got, err := parseTier(text); err != nil || got != want {
			t.Errorf("parseTier(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"/nvme", ":1GiB", "/nvme:", "/nvme:0", "/nvme:0%", "/nvme:130%",
		"1GiB:/nvme", "/nvme:30%,", "/nvme:30%,kept", "/nvme,keep",
	} {
		if got, err := parseTier(text); err == nil {
			t.Errorf("parseTier(%q) = %+v, want an error", text, got)
		}
	}
}

func TestTierFolderBecomesAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	o := CacheOptions{Tier: "a/b:30%"}
	if err := o.checkTier(); err != nil || o.Tier != dir+"/a/b:30%" {
		t.Errorf("%q, %v", o.Tier, err)
	}
	if err := o.checkTier(); err != nil || o.Tier != dir+"/a/b:30%" {
		t.Errorf("checked again: %q, %v", o.Tier, err)
	}
}

// TestTierIsDivided checks that 100 % hold all that a rank owns, and that the data sets share a
// size.
func TestTierIsDivided(t *testing.T) {
	sets := func() []mpicache.DataSet {
		return []mpicache.DataSet{
			{Samples: 1000, Size: func(id draw.SampleID) int64 { return 100 + int64(id)%5000 }},
			{Samples: 100, Size: func(draw.SampleID) int64 { return 300_000 }},
		}
	}
	data := sets()
	tierPlace{size: memory.Amount{Share: 1, IsShare: true}}.divide(data, 3)
	for i := range data {
		d := &data[i]
		var owned [3]int64
		for id := range draw.SampleID(d.Samples) {
			block := d.TierBlockBytes
			owned[draw.Owner(id, 3)] += (slab.Footprint(d.Size(id)) +
				block - 1) / block * block
		}
		if [3]int64(d.TierBytes) != owned || d.TierBlockBytes != []int64{512, 16 << 10}[i] {
			t.Errorf("data set %d: tiers of %v in blocks of %d, owned are %v", i, d.TierBytes,
				d.TierBlockBytes, owned)
		}
	}
	data = sets()
	tierPlace{size: memory.Amount{Bytes: 10 << 20}}.divide(data, 2)
	for r := range 2 {
		if sum := data[0].TierBytes[r] + data[1].TierBytes[r]; sum > 10<<20 ||
			sum < 10<<20-64<<10 || data[0].TierBytes[r] < 200<<10 {
			t.Errorf("rank %d: %d and %d bytes", r, data[0].TierBytes[r], data[1].TierBytes[r])
		}
	}
}

func TestLocalDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		file:                           "not a directory",
		filepath.Join(file, "missing"): "not a directory",
		"/missing":                     "no such file or directory",
		"/dev/shm":                     "it is memory (tmpfs)",
	} {
		if err := localDisk(dir); err == nil || err.Error() != want {
			t.Errorf("localDisk(%s) = %v, want %q", dir, err, want)
		}
	}
}
