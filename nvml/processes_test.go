package nvml

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"rankpool/nvml/nvmltest"
)

// readInt reads an int of C.
func readInt(address uintptr) int32 { return **(**int32)(unsafe.Pointer(&address)) }

// The list reads the same whatever the driver calls the function and however long its structs are.
func TestProcesses(t *testing.T) {
	drivers := []struct {
		suffix string
		bytes  int
	}{{"", 16}, {"_v2", 24}, {"_v3", 24}, {"_v3", 32}, {"_v3", 16}}
	for _, driver := range drivers {
		for _, count := range []int{0, 1, 2, 200} { // 200 are more than there is room for at first
			t.Run(fmt.Sprintf("%s, %d bytes, %d processes", driver.suffix, driver.bytes, count), func(t *testing.T) {
				l := open(t, nvmltest.Build(t, fmt.Sprintf("-DLAYOUT=%d", driver.bytes), fmt.Sprintf("-DPROCESS_COUNT=%d", count),
					"-DPROCESSES=nvmlDeviceGetComputeRunningProcesses"+driver.suffix))
				got, err := device(t, l, 0).Processes()
				if err != nil || len(got) != count {
					t.Fatalf("%d processes, %v", len(got), err)
				}
				for i, p := range got {
					switch {
					case p.PID != 4000+i:
						t.Errorf("process %d has PID %d", i, p.PID)
					case i == 1 && p.UsedBytes != nil:
						t.Errorf("process 1 uses %d bytes, want not available", *p.UsedBytes)
					case i != 1 && (p.UsedBytes == nil || *p.UsedBytes != int64(i+1)<<30):
						t.Errorf("process %d: %v", i, p.UsedBytes)
					}
				}
			})
		}
	}
}

func TestProcessesOfOthers(t *testing.T) {
	l := open(t, nvmltest.Build(t, "-DPROCESSES=nothing"))
	if _, err := device(t, l, 0).Processes(); !errors.Is(err, ErrNotAvailable) {
		t.Errorf("a driver without the function: %v, want ErrNotAvailable", err)
	}
	l = open(t, nvmltest.Build(t))
	if _, err := device(t, l, 3).Processes(); text(nil, err) != GPUIsLost {
		t.Errorf("a lost GPU: %v, want GPU_IS_LOST", err)
	}
}

// A driver that writes anything else is not guessed at.
func FuzzParseProcesses(f *testing.F) {
	f.Add(2, 4)
	f.Add(3, 9)
	f.Add(1, 5)
	f.Add(2, 3)
	f.Add(7, 0)
	f.Fuzz(func(t *testing.T, count, written int) {
		if count < 1 || count > 64 || written < 0 || written > 64*processWords {
			return
		}
		words := slices.Repeat([]uint64{processUntouched}, 64*processWords)
		for i := range written {
			words[i] = uint64(i)
		}
		got, err := parseProcesses(words, count)
		known := written == 2*count || written == 3*count || written == 4*count
		if known != (err == nil) || known && len(got) != count {
			t.Errorf("%d processes in %d words: %v, %v", count, written, got, err)
		}
		for i, p := range got {
			if p.PID != i*written/count {
				t.Errorf("process %d has PID %d", i, p.PID)
			}
		}
	})
}
