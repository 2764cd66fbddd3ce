package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"rankpool/nvml/nvmltest"
)

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

// readInt reads a C int.
func readInt(address uintptr) int32 { return **(**int32)(unsafe.Pointer(&address)) }
