package rank

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/mpicache/stats"
	"rankpool/nvml"
	"rankpool/nvml/nvmltest"
	"rankpool/slurm"
)

func openFakeNVML(t testing.TB, flags ...string) *nvml.Library {
	t.Helper()
	library, err := nvml.Open(nvmltest.Build(t, flags...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = library.Close() })
	return library
}

// gpusOf returns the GPUs that a process with these variables (NAME=VALUE) may use.
func gpusOf(env ...string) slurm.GPUs {
	return slurm.DetectGPUs(func(name string) (string, bool) {
		for _, line := range env {
			if value, found := strings.CutPrefix(line, name+"="); found {
				return value, true
			}
		}
		return "", false
	})
}

func TestFindGPUs(t *testing.T) {
	const (
		first, second, third = "GPU-00000000-aaaa-0000-0000-000000000000",
			"GPU-11111111-bbbb-0000-0000-000000000000", "GPU-2222"
		migA, migB = "MIG-aaaaaaaa-0000-0000-0000-000000000000",
			"MIG-bbbbbbbb-0000-0000-0000-000000000000"
	)
	all := []string{first, second, migA, migB}
	library, hidden := openFakeNVML(t), openFakeNVML(t, "-DHIDDEN=1")
	tests := []struct {
		name    string
		library *nvml.Library
		env     []string
		want    []string
		says    string // in the error
	}{
		{"no variable", library, nil, all, "GPU_IS_LOST"},
		{
			"no permission for one", hidden, nil,
			[]string{first, migA, migB},
			"GPU 3: nvml: nvmlDeviceGetUUID: GPU_IS_LOST",
		},
		{
			"indices in their order", library,
			[]string{"CUDA_VISIBLE_DEVICES=1,0"},
			[]string{second, first},
			"",
		},
		{"a divided GPU by index", library, []string{"CUDA_VISIBLE_DEVICES=2"}, []string{migA, migB}, ""},
		{
			"a divided GPU by UUID", library,
			[]string{"CUDA_VISIBLE_DEVICES=" + third},
			[]string{migA, migB},
			"",
		},
		{
			"UUIDs, one cut short", library,
			[]string{"CUDA_VISIBLE_DEVICES=" + second + ",GPU-0000"},
			[]string{second, first},
			"",
		},
		{"a MIG device", library, []string{"CUDA_VISIBLE_DEVICES=" + migB}, []string{migB}, ""},
		{
			"a MIG device of an old driver", library,
			[]string{"CUDA_VISIBLE_DEVICES=MIG-GPU-22222222/1/0"},
			nil,
			"GPU MIG-GPU-22222222/1/0 not found",
		},
		{
			"the lost one", library,
			[]string{"CUDA_VISIBLE_DEVICES=0,3"},
			[]string{first},
			"GPU 3: nvml: nvmlDeviceGetUUID: GPU_IS_LOST",
		},
		{
			"one that is not there", library,
			[]string{"CUDA_VISIBLE_DEVICES=0,7"},
			[]string{first},
			"GPU 7 not found",
		},
		{"none", library, []string{"CUDA_VISIBLE_DEVICES="}, nil, ""},
		{"none, as Slurm says it", library, []string{"CUDA_VISIBLE_DEVICES=NoDevFiles"}, nil, ""},
		{
			"what Slurm gave, of a node that shows all", library,
			[]string{"SLURM_STEP_GPUS=1"},
			[]string{second},
			"",
		},
		{
			"what Slurm gave, of a node that shows no other", library,
			[]string{"SLURM_STEP_GPUS=4,5,6,7"},
			all, "GPU_IS_LOST",
		},
		{"a job without GPUs", library, []string{"SLURM_GPUS_ON_NODE=0"}, nil, ""},
		{"a number", library, []string{"SLURM_GPUS_ON_NODE=4"}, all, "GPU_IS_LOST"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := findGPUs(tt.library, gpusOf(tt.env...))
			var got []string
			for _, g := range found {
				got = append(got, g.State.UUID)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %v, want %v", got, tt.want)
			}
			if (err == nil) != (tt.says == "") ||
				err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want %q", err, tt.says)
			}
		})
	}
}

var errSilent = errors.New("not told")

// A fakeGPU returns the values set in it.
type fakeGPU struct {
	mu          sync.Mutex
	utilisation float64 // below 0: not available
	pcieCalls   int
}

func (f *fakeGPU) Utilisation() (float64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.utilisation < 0 {
		return 0, errSilent
	}
	return f.utilisation, nil
}

func (f *fakeGPU) Memory() (nvml.Memory, error) {
	return nvml.Memory{TotalBytes: 80, UsedBytes: 8}, nil
}
func (f *fakeGPU) Power() (float64, error)       { return 0, errSilent }
func (f *fakeGPU) Temperature() (float64, error) { return 50, nil }
func (f *fakeGPU) PCIe() (nvml.Throughput, error) {
	f.pcieCalls++
	return nvml.Throughput{ReceiveBytes: float64(f.pcieCalls), SendBytes: 2}, nil
}

// A gpuBench is a sampler of fake GPUs and the clock it reads.
type gpuBench struct {
	*gpuSampler
	now  time.Time
	fake []*fakeGPU
}

func newGPUBench(gpus int) *gpuBench {
	b := &gpuBench{now: time.Unix(1000, 0)}
	var sampled []sampledGPU
	for i := range gpus {
		f := &fakeGPU{}
		b.fake = append(b.fake, f)
		sampled = append(
			sampled, sampledGPU{device: f, State: stats.GPU{Index: i, UUID: "GPU-x", Name: "x"}})
	}
	b.gpuSampler = &gpuSampler{clock: func() time.Time { return b.now }}
	b.use(sampled)
	return b
}

// after lets time pass and reads the GPUs.
func (b *gpuBench) after(d time.Duration) {
	b.now = b.now.Add(d)
	b.sample()
}

func (b *gpuBench) sums(g int, stallSeconds float64, trainers int) idleSums {
	s := b.Snapshot(stallSeconds, trainers)[g]
	return idleSums{s.SampledSeconds, s.IdleSeconds, float64(s.WaitedSeconds)}
}

// wantSums checks the sums of GPU g since the last call.
func (b *gpuBench) wantSums(
	t *testing.T, g int, stallSeconds float64, trainers int, want idleSums,
) {
	t.Helper()
	if got := b.sums(g, stallSeconds, trainers); got != want {
		t.Errorf("GPU %d: %+v, want %+v", g, got, want)
	}
}

func TestGPUSamplerTells(t *testing.T) {
	b := newGPUBench(1)
	b.fake[0].utilisation = 0.25
	if got := b.Snapshot(0, 1)[0]; got.Utilisation != nil || got.UUID != "GPU-x" {
		t.Errorf("before the first reading: %+v", got)
	}
	b.sample()
	text, err := json.Marshal(b.Snapshot(0, 1))
	want := `[{"uuid":"GPU-x","name":"x","index":0,"utilisation":0.25,"memory_used_bytes":8,"memory_total_bytes":80,"power_watts":null,` +
		`"celsius":50,"pcie_receive_bytes_per_second":1,"pcie_send_bytes_per_second":2,"sampled_seconds":0,"idle_seconds":0,"waited_seconds":0}]`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v\nwant %s", text, err, want)
	}
	b.now = b.now.Add(gpuStale + 1)
	if got := b.Snapshot(0, 1)[0]; got.Utilisation != nil || got.Celsius != nil ||
		got.MemoryUsedBytes != nil || got.Name != "x" {
		t.Errorf("of a driver that hangs: %+v", got)
	}
	var none *gpuSampler
	if got := none.Snapshot(1, 1); got != nil {
		t.Errorf("without GPUs: %v", got)
	}
}

func TestGPUSamplerAccounts(t *testing.T) {
	t.Run("idle and waiting, two trainers", func(t *testing.T) {
		b := newGPUBench(2)
		b.fake[0].utilisation, b.fake[1].utilisation = 0.5, 1
		b.sample()
		b.Snapshot(0, 2)
		b.after(time.Second)
		b.wantSums(t, 0, 0.5, 2, idleSums{1, 0.5, 0.25})
		b.wantSums(t, 1, 0.5, 2, idleSums{1, 0, 0})
	})
	t.Run("no reading between two calls", func(t *testing.T) {
		b := newGPUBench(1)
		b.sample()
		b.Snapshot(0, 1)
		b.sums(0, 0.5, 1) // the waiting is the next call's
		b.after(time.Second)
		b.wantSums(t, 0, 0.75, 1, idleSums{1, 1, 0.75})
	})
	t.Run("two readings between two calls", func(t *testing.T) {
		b := newGPUBench(1)
		b.sample()
		b.after(time.Second)
		b.fake[0].utilisation = 1
		b.after(time.Second)
		b.wantSums(t, 0, 1.5, 1, idleSums{2, 1, 1})
	})
	t.Run("without trainers", func(t *testing.T) {
		b := newGPUBench(1)
		b.sample()
		b.after(time.Second)
		b.wantSums(t, 0, 0, 0, idleSums{})
	})
	t.Run("utilisation not told", func(t *testing.T) {
		b := newGPUBench(2)
		b.fake[0].utilisation = -1
		b.sample()
		b.after(time.Second)
		b.wantSums(t, 0, 1, 1, idleSums{})
		b.wantSums(t, 1, 1, 1, idleSums{1, 1, 1})
	})
	t.Run("after a long pause", func(t *testing.T) {
		b := newGPUBench(1)
		b.sample()
		b.after(time.Minute)
		b.wantSums(t, 0, 1, 1, idleSums{})
	})
}

// The PCIe throughput, which takes 40 ms to read, is read of one GPU every ten seconds, in turn.
func TestGPUSamplerReadsPCIeSparsely(t *testing.T) {
	b := newGPUBench(2)
	for range 40 { // seconds 0 to 39
		b.sample()
		b.now = b.now.Add(time.Second)
	}
	if b.fake[0].pcieCalls != 2 || b.fake[1].pcieCalls != 2 {
		t.Errorf("%d and %d calls in 40 s, want 2 and 2", b.fake[0].pcieCalls, b.fake[1].pcieCalls)
	}
	if got := b.Snapshot(0, 0); *got[0].ReceiveBytes != 2 || *got[1].ReceiveBytes != 2 {
		t.Errorf("%v and %v, want the newest of each", *got[0].ReceiveBytes, *got[1].ReceiveBytes)
	}
}

func TestGPUSamplerRuns(t *testing.T) {
	b := newGPUBench(1)
	ctx, cancel := context.WithCancel(t.Context())
	ticks, ended := make(chan time.Time), make(chan struct{})
	go func() {
		b.run(ctx, ticks)
		close(ended)
	}()
	for range 3 {
		ticks <- time.Time{}
		b.Snapshot(0, 1) // at the same time as a reading
	}
	cancel()
	<-ended
	if got := b.Snapshot(0, 1)[0]; got.Celsius == nil {
		t.Error("nothing was read")
	}
}

// never is the late channel for a driver that answers.
var never <-chan time.Time

// A process without GPUs has no sampler, or one that lists none.
func TestSampleGPUs(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	if s := sampleGPUs(t.Context(), nvmltest.Build(t), never, log); s != nil {
		t.Error("a sampler without GPUs")
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	s := sampleGPUs(t.Context(), filepath.Join(t.TempDir(), "none.so"), never, log)
	<-s.opened
	if got := s.Snapshot(0, 0); got != nil {
		t.Errorf("GPUs %+v without a library", got)
	}
	s = sampleGPUs(t.Context(), nvmltest.Build(t), never, log)
	<-s.opened
	if got := s.Snapshot(0, 0); len(got) != 1 || got[0].Index != 1 {
		t.Errorf("GPUs %+v, want that of index 1", got)
	}
}

// A lineBuffer sends each write to the channel.
type lineBuffer chan string

func (b lineBuffer) Write(line []byte) (int, error) {
	b <- string(line)
	return len(line), nil
}

// A driver that hangs does not block its callers, and is reported once; its GPUs appear when it
// answers.
func TestHangingDriver(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,1")
	path, release := nvmltest.BuildHanging(t)
	late, lines := make(chan time.Time, 1), make(lineBuffer, 8)
	s := sampleGPUs(t.Context(), path, late, messages.New(lines, messages.Options{}))
	if got := s.Snapshot(5, 1); got != nil {
		t.Errorf("GPUs %+v of a driver that hangs", got)
	}
	late <- time.Time{}
	if line := <-lines; !strings.Contains(line, "driver does not answer") {
		t.Errorf("it logged %q", line)
	}
	release()
	<-s.opened
	if got := s.Snapshot(5, 1); len(got) != 2 || got[0].Index != 0 || got[1].Index != 1 {
		t.Errorf("GPUs %+v, want the two of a driver that answers late", got)
	}
	if s.stall != 5 {
		t.Errorf("%v s of waiting are joined before GPUs were read, want 5", s.stall)
	}
}

// A sampler that is closed while its driver hangs neither reads nor logs when the driver answers.
func TestHangingDriverAtTheEnd(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "3") // is lost, which would be logged
	path, release := nvmltest.BuildHanging(t)
	ctx, end := context.WithCancel(t.Context())
	lines := make(lineBuffer, 8)
	s := sampleGPUs(ctx, path, never, messages.New(lines, messages.Options{}))
	end()
	release()
	<-s.opened
	if got := s.Snapshot(0, 1); got != nil || len(lines) != 0 {
		t.Errorf("GPUs %+v, and %d lines", got, len(lines))
	}
}
