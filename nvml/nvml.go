// Package nvml reads the state of NVIDIA GPUs through the driver's management library (NVML). It
// loads the library at run time: building does not need CUDA, and a machine without the library is
// normal ([ErrNotFound]).
//
// A value that a GPU, its driver or its administrator does not provide is an error that is
// [ErrNotAvailable], never 0. A [Library] and its Devices may be used by several goroutines; NVML
// itself is thread-safe.
//
// Source: NVIDIA, NVML API Reference Guide, and nvml.h of NVML 13 for names, numbers and layouts.
package nvml

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
)

// DefaultPath is the library's name, which the driver installs in the loader's search path.
const DefaultPath = "libnvidia-ml.so.1"

// textBytes is the size of a buffer for the longest UUID or name, with the final zero byte.
//
// Source: nvml.h, NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE 96,
// NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE 80.
const textBytes = 96

// A Library is NVML, loaded and initialised. Close it after use.
type Library struct {
	mu     sync.RWMutex // held for reading during C calls
	handle uintptr
	open   bool
	calls  calls
}

// calls are the NVML functions that this package uses. Those that an old driver lacks are nil.
type calls struct {
	init, shutdown func() Code
	count          func(count *uint32) Code
	handleByIndex  func(index uint32, device *uintptr) Code
	uuid           func(device uintptr, text *byte, size uint32) Code
	name           func(device uintptr, text *byte, size uint32) Code
	utilisation    func(device uintptr, to *utilisation) Code
	memory         func(device uintptr, to *memory) Code
	power          func(device uintptr, milliwatts *uint32) Code
	temperature    func(device uintptr, sensor uint32, celsius *uint32) Code
	pcie           func(device uintptr, counter uint32, kilobytes *uint32) Code
	migCount       func(device uintptr, count *uint32) Code
	migHandle      func(device uintptr, index uint32, mig *uintptr) Code
}

// Open loads the library at path ("": [DefaultPath], from the loader's search path) and initialises
// it, which does not touch any GPU yet. The caller must close it.
//
// Errors: ErrNotFound when there is no such library, when it lacks a function that every driver
// since 2013 has, or when there is no loaded driver or no GPU; an *Error when NVML fails to
// initialise for another reason.
func Open(path string) (*Library, error) {
	if path == "" {
		path = DefaultPath
	}
	// The loader keeps its error text per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	l := &Library{handle: handle, open: true}
	if err := l.bind(); err != nil {
		_ = purego.Dlclose(handle) // report the earlier error
		return nil, err
	}
	if code := l.calls.init(); code != Success {
		_ = purego.Dlclose(handle) // likewise
		err := &Error{"nvmlInit_v2", code}
		switch code {
		case DriverNotLoaded, LibraryNotFound, GPUNotFound:
			return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		return nil, err
	}
	return l, nil
}

// bind looks the functions up.
func (l *Library) bind() error {
	needed := []struct {
		to     any
		symbol string
	}{
		{&l.calls.init, "nvmlInit_v2"},
		{&l.calls.shutdown, "nvmlShutdown"},
		{&l.calls.count, "nvmlDeviceGetCount_v2"},
		{&l.calls.handleByIndex, "nvmlDeviceGetHandleByIndex_v2"},
		{&l.calls.uuid, "nvmlDeviceGetUUID"},
	}
	for _, n := range needed {
		if !l.lookup(n.to, n.symbol) {
			return fmt.Errorf("%w: the library has no %s", ErrNotFound, n.symbol)
		}
	}
	l.lookup(&l.calls.name, "nvmlDeviceGetName")
	l.lookup(&l.calls.utilisation, "nvmlDeviceGetUtilizationRates")
	l.lookup(&l.calls.memory, "nvmlDeviceGetMemoryInfo")
	l.lookup(&l.calls.power, "nvmlDeviceGetPowerUsage")
	l.lookup(&l.calls.temperature, "nvmlDeviceGetTemperature")
	l.lookup(&l.calls.pcie, "nvmlDeviceGetPcieThroughput")
	l.lookup(&l.calls.migCount, "nvmlDeviceGetMaxMigDeviceCount")
	l.lookup(&l.calls.migHandle, "nvmlDeviceGetMigDeviceHandleByIndex")
	return nil
}

// lookup sets to, a pointer to a function, to symbol, or leaves it nil if the library lacks symbol.
func (l *Library) lookup(to any, symbol string) bool {
	address, err := purego.Dlsym(l.handle, symbol)
	if err != nil {
		return false
	}
	purego.RegisterFunc(to, address)
	return true
}

// do runs call, which calls symbol, unless the library is closed or lacks symbol.
func (l *Library) do(symbol string, there bool, call func() Code) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	code := Uninitialized
	switch {
	case l.open && there:
		code = call()
	case l.open:
		code = FunctionNotFound
	}
	if code != Success {
		return &Error{symbol, code}
	}
	return nil
}

// Close waits for calls in progress, then shuts NVML down and unloads the library. Later calls fail
// with Uninitialized; a second Close does nothing.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return nil
	}
	l.open = false
	var ended error
	if code := l.calls.shutdown(); code != Success {
		ended = &Error{"nvmlShutdown", code}
	}
	return errors.Join(ended, purego.Dlclose(l.handle))
}

// Count returns the number of GPUs of the machine, including those that this process may not use.
func (l *Library) Count() (int, error) {
	var count uint32
	err := l.do("nvmlDeviceGetCount_v2", true, func() Code { return l.calls.count(&count) })
	return int(count), err
}

// Device returns GPU index, in [0, Count). NVML orders GPUs by PCI address.
//
// Errors: ErrNotAvailable when this process may not use the GPU; an *Error with GPUIsLost when it
// does not answer.
func (l *Library) Device(index int) (Device, error) {
	d := Device{library: l}
	err := l.do("nvmlDeviceGetHandleByIndex_v2", true,
		func() Code { return l.calls.handleByIndex(uint32(index), &d.handle) })
	return d, err
}
