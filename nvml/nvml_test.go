package nvml

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"rankpool/nvml/nvmltest"
)

var realPath = flag.String("nvml", "", "a real library, such as libnvidia-ml.so.1, to test as "+
	"well, on a machine with a GPU")

func open(t testing.TB, path string) *Library {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func device(t testing.TB, l *Library, index int) Device {
	t.Helper()
	d, err := l.Device(index)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// text renders a value or its error's code, so that a table can compare both.
func text(value any, err error) any {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Code
	}
	if err != nil {
		return err.Error()
	}
	return value
}

// readings returns all values of d, by name.
func readings(d Device) map[string]any {
	uuid, uuidErr := d.UUID()
	name, nameErr := d.Name()
	utilisation, utilisationErr := d.Utilisation()
	memory, memoryErr := d.Memory()
	power, powerErr := d.Power()
	celsius, celsiusErr := d.Temperature()
	pcie, pcieErr := d.PCIe()
	mig, migErr := d.MIG()
	return map[string]any{
		"uuid": text(uuid, uuidErr), "name": text(name, nameErr),
		"utilisation": text(utilisation, utilisationErr),
		"memory":      text(memory, memoryErr), "power": text(power, powerErr),
		"temperature": text(celsius, celsiusErr),
		"pcie":        text(pcie, pcieErr), "mig": text(mig, migErr),
	}
}

// Every value of every kind of GPU is what the library returns, or its error code.
func TestReadings(t *testing.T) {
	l := open(t, nvmltest.Build(t))
	if n, err := l.Count(); n != nvmltest.GPUs || err != nil {
		t.Fatalf("Count() = %d, %v", n, err)
	}
	full := Memory{TotalBytes: 141 << 30, UsedBytes: 5 << 30}
	moved := Throughput{ReceiveBytes: 7e9, SendBytes: 2e6}
	tests := []map[string]any{
		0: {
			"uuid": "GPU-00000000-aaaa-0000-0000-000000000000", "name": "Fake H200", "utilisation": 0.75,
			"memory": full, "power": 312.5,
			"temperature": 41.0, "pcie": moved, "mig": NotSupported,
		},
		1: {
			"uuid": "GPU-11111111-bbbb-0000-0000-000000000000", "name": "Fake H200", "utilisation": 0.0,
			"memory": full,
			"power":  NoPermission, "temperature": 41.0, "pcie": moved, "mig": false,
		},
		2: {
			"uuid": "GPU-22222222-cccc-0000-0000-000000000000", "name": "Fake A100",
			"utilisation": NotSupported, "memory": full,
			"power": 312.5, "temperature": 41.0, "pcie": moved, "mig": true,
		},
		3: {
			"uuid": GPUIsLost, "name": GPUIsLost, "utilisation": GPUIsLost, "memory": GPUIsLost,
			"power":       GPUIsLost,
			"temperature": GPUIsLost, "pcie": GPUIsLost, "mig": GPUIsLost,
		},
	}
	for i, want := range tests {
		got := readings(device(t, l, i))
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("GPU %d: %s is %v, want %v", i, name, got[name], want[name])
			}
		}
	}
	if _, err := l.Device(4); text(nil, err) != Code(2) {
		t.Errorf("Device(4): %v", err)
	}
}

func TestMIGDevices(t *testing.T) {
	l := open(t, nvmltest.Build(t))
	for i, want := range []int{0, 0, 2} {
		devices, err := device(t, l, i).MIGDevices()
		if len(devices) != want || err != nil {
			t.Errorf("GPU %d: %d MIG devices, %v, want %d", i, len(devices), err, want)
		}
	}
	if _, err := device(t, l, 3).MIGDevices(); text(nil, err) != GPUIsLost {
		t.Errorf("GPU 3: %v, want GPU_IS_LOST", err)
	}
	devices, _ := device(t, l, 2).MIGDevices()
	for i, uuid := range []string{
		"MIG-aaaaaaaa-0000-0000-0000-000000000000",
		"MIG-bbbbbbbb-0000-0000-0000-000000000000",
	} {
		got := readings(devices[i])
		want := map[string]any{
			"uuid": uuid, "utilisation": NotSupported, "power": NotSupported, "pcie": NotSupported,
			"memory": Memory{TotalBytes: 20 << 30, UsedBytes: 5 << 30},
		}
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("MIG device %d: %s is %v, want %v", i, name, got[name], want[name])
			}
		}
	}
}

// The kind of error decides whether a caller shows "not available" or reports a failure.
func TestErrors(t *testing.T) {
	notAvailable := map[Code]bool{
		NotSupported: true, NoPermission: true, FunctionNotFound: true,
		GPUIsLost: false, 999: false, 1: false,
	}
	for code, want := range notAvailable {
		err := error(&Error{"nvmlDeviceGetPowerUsage", code})
		if errors.Is(err, ErrNotAvailable) != want {
			t.Errorf("%v is ErrNotAvailable: %v, want %v", err, !want, want)
		}
	}
	if got := (&Error{
		"nvmlDeviceGetPowerUsage",
		NoPermission,
	}).Error(); got != "nvml: nvmlDeviceGetPowerUsage: NO_PERMISSION" {
		t.Error(got)
	}
	if got := Code(77).String(); got != "code 77" {
		t.Error(got)
	}
}

// A machine without a usable driver is normal; any other failure to initialise is not.
func TestOpenWithout(t *testing.T) {
	notALibrary := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if err := os.WriteFile(notALibrary, []byte("no ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		notFound   bool
		says       string
	}{
		{"no file", filepath.Join(t.TempDir(), "none.so"), true, "none.so"},
		{"no library", notALibrary, true, "libnvidia-ml.so.1"},
		{
			"no function", nvmltest.Build(t, nvmltest.Without("nvmlDeviceGetCount_v2")...), true,
			"nvmlDeviceGetCount_v2",
		},
		{"no driver", nvmltest.Build(t, "-DINIT=9"), true, "DRIVER_NOT_LOADED"},
		{"no GPU", nvmltest.Build(t, "-DINIT=28"), true, "GPU_NOT_FOUND"},
		{"a driver of another version", nvmltest.Build(t, "-DINIT=18"), false, "LIB_RM_VERSION_MISMATCH"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := Open(tt.path)
			if l != nil || errors.Is(err, ErrNotFound) != tt.notFound || err == nil ||
				!strings.Contains(err.Error(), tt.says) {
				t.Errorf("Open = %v, %v; want ErrNotFound: %v, and %q in it", l, err, tt.notFound, tt.says)
			}
		})
	}
}

// If a driver lacks an optional function, the other values can still be read.
func TestOldDriver(t *testing.T) {
	d := device(t, open(t, nvmltest.Build(t, nvmltest.Without("nvmlDeviceGetPowerUsage")...)), 0)
	if _, err := d.Power(); !errors.Is(err, ErrNotAvailable) {
		t.Errorf("Power: %v, want ErrNotAvailable", err)
	}
	if u, err := d.Utilisation(); u != 0.75 || err != nil {
		t.Errorf("Utilisation = %v, %v", u, err)
	}
}

func TestHiddenGPU(t *testing.T) {
	l := open(t, nvmltest.Build(t, "-DHIDDEN=1"))
	if _, err := l.Device(1); !errors.Is(err, ErrNotAvailable) {
		t.Errorf("Device(1): %v, want ErrNotAvailable", err)
	}
}

// Close ends NVML once, and calls after it fail instead of calling into an unloaded library.
func TestClose(t *testing.T) {
	path := nvmltest.Build(t)
	l, other := open(t, path), open(t, path) // the second keeps the library loaded
	d := device(t, l, 0)
	address, err := purego.Dlsym(other.handle, "fake_shutdowns")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := readInt(address); n != 1 {
		t.Errorf("nvmlShutdown was called %d times, want 1", n)
	}
	if _, err := d.UUID(); text(nil, err) != Uninitialized {
		t.Errorf("UUID after Close: %v, want UNINITIALIZED", err)
	}
	if _, err := device(t, other, 0).UUID(); err != nil {
		t.Errorf("the other user of the library: %v", err)
	}
}

// Several goroutines may read while another closes the library.
func TestConcurrent(t *testing.T) {
	l := open(t, nvmltest.Build(t))
	d := device(t, l, 0)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				u, err := d.Utilisation()
				if text(nil, err) == Uninitialized {
					return
				}
				if u != 0.75 || err != nil {
					t.Errorf("Utilisation = %v, %v", u, err)
					return
				}
			}
		})
	}
	for range 100 {
		if _, err := d.Memory(); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	group.Wait()
}

// Any library, including a real one (-nvml), returns values within their ranges or ErrNotAvailable.
func TestAnyLibrary(t *testing.T) {
	libraries := map[string]string{"fake": nvmltest.Build(t)}
	if *realPath != "" {
		libraries["real"] = *realPath
	}
	for name, path := range libraries {
		t.Run(name, func(t *testing.T) {
			l := open(t, path)
			count, err := l.Count()
			if err != nil || count < 1 {
				t.Fatalf("Count() = %d, %v", count, err)
			}
			for i := range count {
				d, err := l.Device(i)
				if err != nil {
					t.Logf("GPU %d: %v", i, err)
					continue
				}
				uuid, err := d.UUID()
				if text(nil, err) == GPUIsLost {
					continue
				}
				if err != nil || !strings.HasPrefix(uuid, "GPU-") {
					t.Errorf("GPU %d: UUID %q, %v", i, uuid, err)
				}
				migs, err := d.MIGDevices()
				if err != nil {
					t.Errorf("GPU %d: %v", i, err)
				}
				for _, d := range append([]Device{d}, migs...) {
					checkRanges(t, d)
				}
			}
		})
	}
}

func checkRanges(t *testing.T, d Device) {
	uuid, _ := d.UUID()
	check := func(what string, good bool, value any, err error) {
		t.Logf("%s %s: %v, %v", uuid, what, value, err)
		if err != nil && !errors.Is(err, ErrNotAvailable) || err == nil && !good {
			t.Errorf("%s %s: %v, %v", uuid, what, value, err)
		}
	}
	name, err := d.Name()
	check("name", name != "", name, err)
	u, err := d.Utilisation()
	check("utilisation", u >= 0 && u <= 1, u, err)
	m, err := d.Memory()
	check("memory", m.TotalBytes >= 1<<30 && m.UsedBytes >= 0 && m.UsedBytes <= m.TotalBytes, m, err)
	w, err := d.Power()
	check("power", w > 1 && w < 5000, w, err)
	c, err := d.Temperature()
	check("temperature", c > 0 && c < 130, c, err)
	moved, err := d.PCIe()
	check("PCIe", moved.ReceiveBytes >= 0 && moved.SendBytes >= 0 && moved.ReceiveBytes < 1e12, moved,
		err)
}

// BenchmarkReadings measures what one reading of a GPU costs, apart from the driver's own work,
// which the fake library does not do.
func BenchmarkReadings(b *testing.B) {
	d := device(b, open(b, nvmltest.Build(b)), 0)
	for b.Loop() {
		_, _ = d.Utilisation()
		_, _ = d.Memory()
		_, _ = d.Power()
		_, _ = d.Temperature()
	}
}

// readInt reads a C int.
func readInt(address uintptr) int32 { return **(**int32)(unsafe.Pointer(&address)) }
