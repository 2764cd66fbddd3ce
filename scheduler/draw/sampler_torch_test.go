package draw

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// torchCase is what PyTorch drew, see testdata/torch_golden.py.
type torchCase struct {
	Samples  int   `json:"samples"`
	World    int   `json:"world"`
	Seed     int64 `json:"seed"`
	Epoch    int   `json:"epoch"`
	DropLast bool  `json:"drop_last"`
	InOrder  bool  `json:"in_order"`

	Replicas [][]SampleID `json:"replicas"`

	Length int        `json:"length"`
	First  []SampleID `json:"first"`
	Last   []SampleID `json:"last"`
	CRC32  uint32     `json:"crc32"`
}

func (c torchCase) check(t *testing.T) {
	t.Helper()
	name := "torch"
	if c.InOrder {
		name = InTorchsOrder
	}
	s, err := NewSampler(SamplerConfig{
		Name: name, Samples: c.Samples, Seed: c.Seed, BatchSize: 2, World: c.World,
		SamplerDropLast: c.DropLast,
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := s.Draw(c.Epoch, nil).IDs
	if c.Replicas == nil {
		crc := crc32.NewIEEE()
		if err := binary.Write(crc, binary.LittleEndian, ids); err != nil {
			t.Fatal(err)
		}
		if len(ids) != c.Length || !slices.Equal(ids[:8], c.First) ||
			!slices.Equal(ids[len(ids)-8:], c.Last) ||
			crc.Sum32() != c.CRC32 {
			t.Errorf("%+v: got %d draws, %v … %v, CRC-32 %d", c, len(ids), ids[:8],
				ids[len(ids)-8:], crc.Sum32())
		}
		return
	}
	for r, want := range c.Replicas {
		var got []SampleID
		for i := r; i < len(ids); i += c.World {
			got = append(got, ids[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s, %d samples, world %d, seed %d, epoch %d, drop_last %v, replica %d: got %v, "+
				"PyTorch draws %v",
				name, c.Samples, c.World, c.Seed, c.Epoch, c.DropLast, r, got, want)
		}
	}
}

func checkTorchCases(t *testing.T, golden []byte) {
	t.Helper()
	var cases []torchCase
	if err := json.Unmarshal(golden, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 50 {
		t.Fatalf("there are %d cases, want 50 or more", len(cases))
	}
	for _, c := range cases {
		c.check(t)
	}
}

// TestTorchGolden compares with what PyTorch drew when the golden file was made.
func TestTorchGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/torch_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	checkTorchCases(t, golden)
}

// TestTorchLive compares with the PyTorch that is installed; it fails where there is none.
func TestTorchLive(t *testing.T) {
	var stderr bytes.Buffer
	script := exec.Command("/usr/bin/python3", "testdata/torch_golden.py")
	script.Stderr = &stderr
	live, err := script.Output()
	if err != nil {
		t.Fatalf("this test needs PyTorch in /usr/bin/python3: %v\n%s", err, stderr.Bytes())
	}
	checkTorchCases(t, live)
}

// TestTwister checks outputs that the C++ standard requires of std::mt19937 (its 10,000th) and that
// are widely printed (its first).
func TestTwister(t *testing.T) {
	random := newTwister(5489)
	if got := random.next(); got != 3499211612 {
		t.Errorf("the first output is %d", got)
	}
	for range 9998 {
		random.next()
	}
	if got := random.next(); got != 4123659995 {
		t.Errorf("the 10,000th output is %d", got)
	}
}

// TestTorchPad: a training that continues with another number of processes keeps the epochs that it
// began with, as DistributedSampler made them then.
func TestTorchPad(t *testing.T) {
	for _, samples := range []int{11, 23, 97, 100, 103} {
		for _, drop := range []bool{false, true} {
			cfg := SamplerConfig{
				Name: "torch", Samples: samples, BatchSize: 3, World: 4, SamplerDropLast: drop, Seed: 5,
			}
			began := mustSampler(t, cfg).Draw(2, nil).IDs
			for _, world := range []int{1, 2, 3, 6} {
				cfg.World, cfg.BatchSize = world, 12/world
				own := mustSampler(t, cfg)
				if got := own.(Padder).Pad(4).Draw(2, nil).IDs; !slices.Equal(got, began) {
					t.Errorf("%d samples, %d processes: %v, want %v", samples, world, got, began)
				}
				if got := own.(Padder).Pad(4).(Padder).Pad(0).Draw(2, nil).IDs; !slices.Equal(got,
					own.Draw(2, nil).IDs) {
					t.Errorf("%d samples, %d processes: not as many as train", samples, world)
				}
			}
		}
	}
	cfg := SamplerConfig{Name: "torch", Samples: 9, BatchSize: 4, World: 2, Processes: 3}
	if _, err := NewSampler(cfg); err == nil || !strings.Contains(err.Error(), "began with 3") {
		t.Errorf("3 processes of a global batch of 8: %v", err)
	}
}

// TestTorchDropLast: DataLoader(drop_last=True) gives each replica whole batches only.
func TestTorchDropLast(t *testing.T) {
	tests := []struct {
		samples, batchSize, world int
		samplerDropLast           bool
		want                      int
	}{
		{100, 8, 4, false, 96},
		{100, 5, 4, false, 100},
		{103, 13, 8, false, 104}, // the padding fills the last batch
		{103, 4, 8, true, 96},
	}
	for _, tt := range tests {
		cfg := SamplerConfig{
			Name: "torch", Samples: tt.samples, BatchSize: tt.batchSize, World: tt.world,
			SamplerDropLast: tt.samplerDropLast,
		}
		all := mustSampler(t, cfg).Draw(3, nil).IDs
		cfg.DropLast = true
		ids := mustSampler(t, cfg).Draw(3, nil).IDs
		if len(ids) != tt.want || !slices.Equal(ids, all[:len(ids)]) {
			t.Errorf("%+v: %d draws, or others than without drop_last", tt, len(ids))
		}
	}
}

func mustSampler(t testing.TB, cfg SamplerConfig) Sampler {
	t.Helper()
	s, err := NewSampler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
