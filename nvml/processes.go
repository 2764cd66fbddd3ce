package nvml

import (
	"errors"
	"fmt"
	"slices"
)

// A Process is one that computes on a GPU.
type Process struct {
	PID       int    // PID is the machine's number of it; in a container it has another.
	UsedBytes *int64 // UsedBytes is its memory of the GPU; nil: not available.
}

// The driver writes an array of structs that grew twice, once without a new name of the function: from drivers 535.43 to
// 535.86 "_v3" has the largest. All begin with the process's number (32 bits) and, at byte 8, its bytes (64 bits), so how
// far the driver wrote into the buffer tells the layout of any driver.
//
// Source: nvml.h, nvmlProcessInfo_v1_t (16 bytes), nvmlProcessInfo_v2_t (24); nvidia-settings' nvml.h of 535.43 (32), by
// way of nvitop, pull requests 79, 89 and 226.
const (
	processWords     = 4                          // 64-bit words of the largest struct
	processUntouched = uint64(0xa5a55a5aa5a55a5a) // what the buffer holds before
	processRoom      = 64                         // processes there is room for at first
	processTries     = 4                          // calls, while processes come faster than the buffer grows
	valueUnknown     = ^uint64(0)                 // NVML_VALUE_NOT_AVAILABLE
)

// Processes returns the processes that compute on the GPU or MIG device, in the driver's order.
func (d Device) Processes() ([]Process, error) {
	c := d.library.calls
	room := uint32(processRoom)
	for range processTries {
		words := slices.Repeat([]uint64{processUntouched}, int(room)*processWords)
		count := room
		err := d.library.do(c.processesSymbol, c.processes != nil, func() Code { return c.processes(d.handle, &count, &words[0]) })
		var failed *Error
		switch {
		case err == nil:
			return parseProcesses(words, int(count))
		case errors.As(err, &failed) && failed.Code == InsufficientSize:
			room = 2 * max(room, count)
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("nvml: the list of processes does not stand still: %w", ErrNotAvailable)
}

// parseProcesses reads count structs, whose size it finds by how far words was written.
func parseProcesses(words []uint64, count int) ([]Process, error) {
	if count == 0 {
		return nil, nil
	}
	written := len(words)
	for written > 0 && words[written-1] == processUntouched {
		written--
	}
	stride := written / count
	if written%count != 0 || stride < 2 || stride > processWords {
		return nil, fmt.Errorf("nvml: %d processes in %d bytes, which no known driver writes: %w", count, 8*written, ErrNotAvailable)
	}
	processes := make([]Process, count)
	for i := range processes {
		at := words[i*stride:]
		processes[i].PID = int(uint32(at[0]))
		if at[1] != valueUnknown {
			used := int64(at[1])
			processes[i].UsedBytes = &used
		}
	}
	return processes, nil
}
