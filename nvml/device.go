package nvml

import (
	"bytes"
	"errors"
)

// A Device is a GPU or a MIG device of an open [Library]. Its methods fail with an *Error, which is
// ErrNotAvailable when the GPU, its driver or its administrator does not provide the value.
type Device struct {
	library *Library
	handle  uintptr
}

// The layouts of nvmlUtilization_t and nvmlMemory_t.
type (
	utilisation struct{ gpu, _ uint32 }         // percent of the time; _ is the memory's
	memory      struct{ total, _, used uint64 } // bytes; _ is free memory
)

// Memory is the memory of a GPU.
type Memory struct {
	TotalBytes int64
	UsedBytes  int64 // allocated, and reserved by the driver
}

// Throughput is what a GPU moves over PCIe.
type Throughput struct {
	ReceiveBytes float64 // bytes per second, to the GPU
	SendBytes    float64 // bytes per second, from the GPU
}

// Constants of nvml.h: nvmlTemperatureSensors_t and nvmlPcieUtilCounter_t.
const (
	temperatureGPU = 0
	pcieSend       = 0
	pcieReceive    = 1
)

// UUID returns the GPU's identity, such as "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", or that of a
// MIG device, "MIG-…".
func (d Device) UUID() (string, error) {
	return d.text("nvmlDeviceGetUUID", d.library.calls.uuid)
}

// Name returns the product name, such as "NVIDIA A100-SXM4-40GB".
func (d Device) Name() (string, error) {
	return d.text("nvmlDeviceGetName", d.library.calls.name)
}

// text returns the string that call, which is symbol, writes into a buffer.
func (d Device) text(
	symbol string, call func(device uintptr, text *byte, size uint32) Code,
) (string, error) {
	var buffer [textBytes]byte
	if err := d.library.do(symbol, call != nil,
		func() Code { return call(d.handle, &buffer[0], textBytes) }); err != nil {
		return "", err
	}
	text, _, _ := bytes.Cut(buffer[:], []byte{0})
	return string(text), nil
}

// read returns the value that call, which is symbol, fills in.
func read[T any](d Device, symbol string, call func(device uintptr, to *T) Code) (T, error) {
	var value T
	err := d.library.do(symbol, call != nil, func() Code { return call(d.handle, &value) })
	return value, err
}

// Utilisation returns the share of the last sampling period in which a kernel ran, in [0, 1]. The
// GPU chooses the period, between 1/6 s and 1 s. A kernel that fills a small part of the GPU counts
// as much as one that fills it. It is not available for MIG devices, nor for GPUs in MIG mode.
//
// Source: NVML API Reference Guide, nvmlUtilization_t and nvmlDeviceGetUtilizationRates.
func (d Device) Utilisation() (float64, error) {
	u, err := read(d, "nvmlDeviceGetUtilizationRates", d.library.calls.utilisation)
	return float64(min(u.gpu, 100)) / 100, err
}

// Memory returns the memory of the GPU or MIG device.
func (d Device) Memory() (Memory, error) {
	m, err := read(d, "nvmlDeviceGetMemoryInfo", d.library.calls.memory)
	return Memory{TotalBytes: int64(m.total), UsedBytes: int64(m.used)}, err
}

// Power returns the power draw of the GPU's board, in watts.
func (d Device) Power() (float64, error) {
	milliwatts, err := read(d, "nvmlDeviceGetPowerUsage", d.library.calls.power)
	return float64(milliwatts) / 1000, err
}

// Temperature returns the temperature of the GPU's die, in °C.
func (d Device) Temperature() (float64, error) {
	var celsius uint32
	c := d.library.calls
	err := d.library.do("nvmlDeviceGetTemperature", c.temperature != nil,
		func() Code { return c.temperature(d.handle, temperatureGPU, &celsius) })
	return float64(int32(celsius)), err
}

// PCIe measures the throughput over PCIe, for 20 ms in each direction, so it takes 40 ms. Call it
// sparingly.
//
// Source: NVML API Reference Guide, nvmlDeviceGetPcieThroughput: "querying a byte counter over a
// 20ms interval", in KB/s.
func (d Device) PCIe() (Throughput, error) {
	receive, err := d.pcie(pcieReceive)
	if err != nil {
		return Throughput{}, err
	}
	send, err := d.pcie(pcieSend)
	if err != nil {
		return Throughput{}, err
	}
	return Throughput{ReceiveBytes: receive, SendBytes: send}, nil
}

func (d Device) pcie(counter uint32) (bytesPerSecond float64, err error) {
	var kilobytes uint32
	c := d.library.calls
	err = d.library.do("nvmlDeviceGetPcieThroughput", c.pcie != nil,
		func() Code { return c.pcie(d.handle, counter, &kilobytes) })
	return float64(kilobytes) * 1000, err
}

// MIGDevices returns the GPU's MIG devices in order of index. It returns none if the GPU is not
// partitioned or cannot be.
func (d Device) MIGDevices() ([]Device, error) {
	c := d.library.calls
	most, err := read(d, "nvmlDeviceGetMaxMigDeviceCount", c.migCount)
	if errors.Is(err, ErrNotAvailable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var devices []Device
	for i := range most {
		mig := Device{library: d.library}
		err := d.library.do("nvmlDeviceGetMigDeviceHandleByIndex", c.migHandle != nil,
			func() Code { return c.migHandle(d.handle, i, &mig.handle) })
		var failed *Error
		switch {
		case err == nil:
			devices = append(devices, mig)
		case errors.As(err, &failed) && failed.Code == NotFound, errors.Is(err, ErrNotAvailable):
			// Indices have gaps, and this process may not use every MIG device.
		default:
			return devices, err
		}
	}
	return devices, nil
}
