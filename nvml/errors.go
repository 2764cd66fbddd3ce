package nvml

import (
	"errors"
	"fmt"
)

// ErrNotFound means that this machine has no NVML, or no driver beneath it, which is normal on a
// machine without GPUs.
var ErrNotFound = errors.New("nvml: no usable NVIDIA driver library")

// ErrNotAvailable means that a value cannot be read: the GPU or its driver does not provide it (for
// example in MIG mode), or this user lacks permission.
var ErrNotAvailable = errors.New("not available")

// An Error is a failed NVML call. It is ErrNotAvailable when its code means that.
type Error struct {
	Call string // the NVML function
	Code Code
}

// Error returns the call and the code.
func (e *Error) Error() string { return fmt.Sprintf("nvml: %s: %s", e.Call, e.Code) }

// Is reports whether target is ErrNotAvailable and the code means that.
func (e *Error) Is(target error) bool { return target == ErrNotAvailable && e.Code.notAvailable() }

// A Code is the result of an NVML call, with NVML's numbers.
//
// Source: nvml.h, nvmlReturn_t.
type Code uint32

// The codes that this package or its callers distinguish.
const (
	Success          Code = 0
	Uninitialized    Code = 1
	NotSupported     Code = 3
	NoPermission     Code = 4
	NotFound         Code = 6
	DriverNotLoaded  Code = 9
	LibraryNotFound  Code = 12
	FunctionNotFound Code = 13
	GPUIsLost        Code = 15
	NoData           Code = 21
	Deprecated       Code = 26
	GPUNotFound      Code = 28
)

// notAvailable reports whether the code means that the value does not exist here, rather than that
// something is broken.
func (c Code) notAvailable() bool {
	switch c {
	case NotSupported, NoPermission, FunctionNotFound, NoData, Deprecated:
		return true
	}
	return false
}

var codeNames = map[Code]string{
	0: "SUCCESS", 1: "UNINITIALIZED", 2: "INVALID_ARGUMENT", 3: "NOT_SUPPORTED", 4: "NO_PERMISSION",
	5: "ALREADY_INITIALIZED",
	6: "NOT_FOUND", 7: "INSUFFICIENT_SIZE", 8: "INSUFFICIENT_POWER", 9: "DRIVER_NOT_LOADED",
	10: "TIMEOUT", 11: "IRQ_ISSUE",
	12: "LIBRARY_NOT_FOUND", 13: "FUNCTION_NOT_FOUND", 14: "CORRUPTED_INFOROM", 15: "GPU_IS_LOST",
	16: "RESET_REQUIRED",
	17: "OPERATING_SYSTEM", 18: "LIB_RM_VERSION_MISMATCH", 19: "IN_USE", 20: "MEMORY", 21: "NO_DATA",
	22: "VGPU_ECC_NOT_SUPPORTED",
	23: "INSUFFICIENT_RESOURCES", 24: "FREQ_NOT_SUPPORTED", 25: "ARGUMENT_VERSION_MISMATCH",
	26: "DEPRECATED", 27: "NOT_READY",
	28: "GPU_NOT_FOUND", 29: "INVALID_STATE", 30: "RESET_TYPE_NOT_SUPPORTED", 999: "UNKNOWN",
}

// String returns NVML's name for the code, without its prefix, such as "GPU_IS_LOST".
func (c Code) String() string {
	if name, known := codeNames[c]; known {
		return name
	}
	return fmt.Sprintf("code %d", uint32(c))
}
