//go:build cgo

package nvml

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	nvidia "github.com/NVIDIA/go-nvml/pkg/nvml"

	"rankpool/nvml/nvmltest"
)

var judged = flag.String("judge", "", "compare this package with NVIDIA's binding on a library, "+
	"then exit")

// TestMain runs the tests, or is the process in which TestAsNVIDIAsBinding compares on one library:
// NVIDIA's binding keeps the functions of the first library that it has called.
func TestMain(m *testing.M) {
	flag.Parse()
	if *judged == "" {
		os.Exit(m.Run())
	}
	j := judge{library: nvidia.New(nvidia.WithLibraryPath(*judged)), tries: 1}
	if *judged == DefaultPath {
		j.tries = 20 // what a real GPU measures may change between two calls
	}
	j.run(*judged)
	fmt.Printf("%d compared\n", j.compared)
}

// A judge compares what two bindings tell, and prints each difference.
type judge struct {
	library  nvidia.Interface
	tries    int // of a value that differs
	compared int
}

// compare calls symbol by both bindings. NVIDIA's may only be called after a look for the symbol.
func (j *judge) compare(name, symbol string, ours, theirs func() any) {
	j.compared++
	if j.library.Extensions().LookupSymbol(symbol) != nil {
		theirs = func() any { return Code(nvidia.ERROR_FUNCTION_NOT_FOUND) }
	}
	var a, b any
	for range j.tries {
		a, b = ours(), theirs()
		_, measured := a.(Throughput) // for 20 ms, which no two calls share
		_, both := b.(Throughput)
		if a == b || measured && both && j.tries > 1 {
			return
		}
	}
	report(name, a, b)
}

func report(name string, ours, theirs any) {
	fmt.Printf("%s: ours %v, NVIDIA's %v\n", name, ours, theirs)
}

// told is what text is for our own functions.
func told(value any, code nvidia.Return) any {
	if code != nvidia.SUCCESS {
		return Code(code)
	}
	return value
}

func (j *judge) run(path string) {
	l, err := Open(path)
	ours, theirs := text("done", err), told("done", j.library.Init())
	if _, coded := ours.(Code); !coded && errors.Is(err, ErrNotFound) {
		ours = Code(nvidia.ERROR_LIBRARY_NOT_FOUND)
	}
	j.compared++
	if ours != theirs {
		report("init", ours, theirs)
	}
	if ours != "done" || theirs != "done" {
		return
	}
	j.compare("GPUs", "nvmlDeviceGetCount_v2",
		func() any { return text(l.Count()) },
		func() any { return told(j.library.DeviceGetCount()) })
	count, _ := l.Count()
	for i := range count + 1 { // the last is not there
		name := fmt.Sprintf("GPU %d", i)
		d, err := l.Device(i)
		his, code := j.library.DeviceGetHandleByIndex(i)
		j.compare(name, "nvmlDeviceGetHandleByIndex_v2",
			func() any { return text("there", err) },
			func() any { return told("there", code) })
		if err == nil && code == nvidia.SUCCESS {
			j.device(name, d, his)
			j.parts(name, d, his)
		}
	}
	j.compare("end", "nvmlShutdown",
		func() any { return text("done", l.Close()) },
		func() any { return told("done", j.library.Shutdown()) })
}

// device compares all that a GPU or a MIG device tells.
func (j *judge) device(name string, d Device, his nvidia.Device) {
	j.compare(name+" UUID", "nvmlDeviceGetUUID",
		func() any { return text(d.UUID()) },
		func() any { return told(his.GetUUID()) })
	j.compare(name+" name", "nvmlDeviceGetName",
		func() any { return text(d.Name()) },
		func() any { return told(his.GetName()) })
	j.compare(name+" utilisation", "nvmlDeviceGetUtilizationRates",
		func() any { return text(d.Utilisation()) },
		func() any {
			rates, code := his.GetUtilizationRates()
			return told(float64(rates.Gpu)/100, code)
		})
	j.compare(name+" memory", "nvmlDeviceGetMemoryInfo",
		func() any { return text(d.Memory()) },
		func() any {
			m, code := his.GetMemoryInfo()
			return told(Memory{TotalBytes: int64(m.Total), UsedBytes: int64(m.Used)}, code)
		})
	j.compare(name+" power", "nvmlDeviceGetPowerUsage",
		func() any { return text(d.Power()) },
		func() any {
			milliwatts, code := his.GetPowerUsage()
			return told(float64(milliwatts)/1000, code)
		})
	j.compare(name+" temperature", "nvmlDeviceGetTemperature",
		func() any { return text(d.Temperature()) },
		func() any {
			celsius, code := his.GetTemperature(nvidia.TEMPERATURE_GPU)
			return told(float64(celsius), code)
		})
	j.compare(name+" PCIe", "nvmlDeviceGetPcieThroughput",
		func() any { return text(d.PCIe()) },
		func() any {
			receive, code := his.GetPcieThroughput(nvidia.PCIE_UTIL_RX_BYTES)
			if code != nvidia.SUCCESS {
				return Code(code)
			}
			send, code := his.GetPcieThroughput(nvidia.PCIE_UTIL_TX_BYTES)
			return told(Throughput{float64(receive) * 1000, float64(send) * 1000}, code)
		})
}

// parts compares the MIG devices of a GPU.
func (j *judge) parts(name string, d Device, his nvidia.Device) {
	ours, err := d.MIGDevices()
	var theirs []nvidia.Device
	var code nvidia.Return
	symbols := j.library.Extensions()
	if symbols.LookupSymbol("nvmlDeviceGetMaxMigDeviceCount") == nil &&
		symbols.LookupSymbol("nvmlDeviceGetMigDeviceHandleByIndex") == nil {
		theirs, code = migDevices(his)
	}
	j.compared++
	a, b := text(len(ours), err), told(len(theirs), code)
	if a != b {
		report(name+" MIG devices", a, b)
	}
	for i := range min(len(ours), len(theirs)) {
		j.device(fmt.Sprintf("%s MIG device %d", name, i), ours[i], theirs[i])
	}
}

// migDevices returns those that the process may use.
func migDevices(his nvidia.Device) (devices []nvidia.Device, code nvidia.Return) {
	count, code := his.GetMaxMigDeviceCount()
	switch code {
	case nvidia.ERROR_NOT_SUPPORTED, nvidia.ERROR_NO_PERMISSION:
		return nil, nvidia.SUCCESS
	}
	for i := range count {
		device, code := his.GetMigDeviceHandleByIndex(i)
		switch code {
		case nvidia.SUCCESS:
			devices = append(devices, device)
		case nvidia.ERROR_NOT_FOUND, nvidia.ERROR_NOT_SUPPORTED, nvidia.ERROR_NO_PERMISSION:
		default:
			return devices, code
		}
	}
	return devices, code
}

// NVIDIA's binding and ours tell the same of any library: every value and every error. The real
// library is one of them on a machine that has it.
func TestAsNVIDIAsBinding(t *testing.T) {
	t.Parallel()
	notALibrary := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if err := os.WriteFile(notALibrary, []byte("no ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	newer := []string{ // than the functions without which no library is opened
		"nvmlDeviceGetName", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo",
		"nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature", "nvmlDeviceGetPcieThroughput",
		"nvmlDeviceGetMaxMigDeviceCount",
		"nvmlDeviceGetMigDeviceHandleByIndex",
	}
	const full = 1 + 1 + 5 + 4*(7+1) + 2*7 + 1 // init, GPUs, …, MIG devices, end
	tests := []struct {
		name, path string
		compared   int // 0: any number
	}{
		{"every kind of GPU", nvmltest.Build(t), full},
		{"a hidden GPU", nvmltest.Build(t, "-DHIDDEN=1"), full - 8},
		{"a driver before MIG", nvmltest.Build(t, nvmltest.Without(newer[5:]...)...), full - 14},
		{"an old driver", nvmltest.Build(t, nvmltest.Without(newer...)...), full - 14},
		{"no driver", nvmltest.Build(t, "-DINIT=9"), 1},
		{"no GPU", nvmltest.Build(t, "-DINIT=28"), 1},
		{"a driver of another version", nvmltest.Build(t, "-DINIT=18"), 1},
		{"an unknown error", nvmltest.Build(t, "-DINIT=999"), 1},
		{"no file", filepath.Join(t.TempDir(), "none.so"), 1},
		{"no library", notALibrary, 1},
		{"this machine's", DefaultPath, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			differences, compared := judgeOf(t, tt.path)
			if len(differences) != 0 {
				t.Errorf("differences:\n%s", strings.Join(differences, "\n"))
			}
			if compared != tt.compared && tt.compared != 0 {
				t.Errorf("%d compared, want %d", compared, tt.compared)
			}
		})
	}
}

// judgeOf returns the differences that a judge of the library at path finds.
func judgeOf(t *testing.T, path string) (differences []string, compared int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "-judge", path)
	command.Stderr = os.Stderr
	out, err := command.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if _, unread := fmt.Sscanf(last, "%d compared", &compared); unread != nil || err != nil {
		t.Fatalf("the judge of %s failed: %v\n%s", path, err, out)
	}
	return lines[:len(lines)-1], compared
}

// A library that tells the two bindings different things is found out, in each value.
func TestJudgeFindsPlantedDifferences(t *testing.T) {
	want := strings.Split(strings.TrimSpace(`
GPUs: ours 4, NVIDIA's 5
GPU 0 UUID: ours GPU-00000000-aaaa-0000-0000-000000000000, NVIDIA's XPU-00000000-aaaa-0000-0000-000000000000
GPU 0 name: ours Fake H200, NVIDIA's Xake H200
GPU 0 utilisation: ours 0.75, NVIDIA's 0.76
GPU 0 memory: ours {151397597184 5368709120}, NVIDIA's {151397597184 5368709121}
GPU 0 power: ours 312.5, NVIDIA's 312.501
GPU 0 temperature: ours 41, NVIDIA's 42
GPU 0 PCIe: ours {7e+09 2e+06}, NVIDIA's {7.000001e+09 2.001e+06}
GPU 1 UUID: ours GPU-11111111-bbbb-0000-0000-000000000000, NVIDIA's XPU-11111111-bbbb-0000-0000-000000000000
GPU 1 name: ours Fake H200, NVIDIA's Xake H200
GPU 1 utilisation: ours 0, NVIDIA's 0.01
GPU 1 memory: ours {151397597184 5368709120}, NVIDIA's {151397597184 5368709121}
GPU 1 power: ours NO_PERMISSION, NVIDIA's 312.501
GPU 1 temperature: ours 41, NVIDIA's 42
GPU 1 PCIe: ours {7e+09 2e+06}, NVIDIA's {7.000001e+09 2.001e+06}
GPU 2 UUID: ours GPU-22222222-cccc-0000-0000-000000000000, NVIDIA's XPU-22222222-cccc-0000-0000-000000000000
GPU 2 name: ours Fake A100, NVIDIA's Xake A100
GPU 2 memory: ours {151397597184 5368709120}, NVIDIA's {151397597184 5368709121}
GPU 2 power: ours 312.5, NVIDIA's 312.501
GPU 2 temperature: ours 41, NVIDIA's 42
GPU 2 PCIe: ours {7e+09 2e+06}, NVIDIA's {7.000001e+09 2.001e+06}
GPU 2 MIG devices: ours 2, NVIDIA's 1
GPU 2 MIG device 0 UUID: ours MIG-aaaaaaaa-0000-0000-0000-000000000000, NVIDIA's XIG-aaaaaaaa-0000-0000-0000-000000000000
GPU 2 MIG device 0 name: ours Fake A100 MIG 3g.20gb, NVIDIA's Xake A100 MIG 3g.20gb
GPU 2 MIG device 0 memory: ours {21474836480 5368709120}, NVIDIA's {21474836480 5368709121}
GPU 2 MIG device 0 temperature: ours 41, NVIDIA's 42
`), "\n")
	got, _ := judgeOf(t, nvmltest.Build(t, "-DPLANTED=1"))
	if !slices.Equal(got, want) {
		t.Errorf("the judge says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Our constants, layouts and names of errors are those of NVIDIA's binding, which are generated
// from nvml.h.
func TestConstantsAreNVIDIAs(t *testing.T) {
	var (
		u  utilisation
		m  memory
		hu nvidia.Utilization
		hm nvidia.Memory
	)
	tests := []struct {
		name         string
		ours, theirs uint64
	}{
		{"temperatureGPU", temperatureGPU, uint64(nvidia.TEMPERATURE_GPU)},
		{"pcieSend", pcieSend, uint64(nvidia.PCIE_UTIL_TX_BYTES)},
		{"pcieReceive", pcieReceive, uint64(nvidia.PCIE_UTIL_RX_BYTES)},
		{"textBytes of a UUID", textBytes, nvidia.DEVICE_UUID_V2_BUFFER_SIZE},
		{"textBytes of a name", textBytes, nvidia.DEVICE_NAME_V2_BUFFER_SIZE},
		{"size of utilisation", uint64(unsafe.Sizeof(u)), uint64(unsafe.Sizeof(hu))},
		{"utilisation.gpu", uint64(unsafe.Offsetof(u.gpu)), uint64(unsafe.Offsetof(hu.Gpu))},
		{"size of memory", uint64(unsafe.Sizeof(m)), uint64(unsafe.Sizeof(hm))},
		{"memory.total", uint64(unsafe.Offsetof(m.total)), uint64(unsafe.Offsetof(hm.Total))},
		{"memory.used", uint64(unsafe.Offsetof(m.used)), uint64(unsafe.Offsetof(hm.Used))},
		{"Success", uint64(Success), uint64(nvidia.SUCCESS)},
		{"Uninitialized", uint64(Uninitialized), uint64(nvidia.ERROR_UNINITIALIZED)},
		{"NotSupported", uint64(NotSupported), uint64(nvidia.ERROR_NOT_SUPPORTED)},
		{"NoPermission", uint64(NoPermission), uint64(nvidia.ERROR_NO_PERMISSION)},
		{"NotFound", uint64(NotFound), uint64(nvidia.ERROR_NOT_FOUND)},
		{"DriverNotLoaded", uint64(DriverNotLoaded), uint64(nvidia.ERROR_DRIVER_NOT_LOADED)},
		{"LibraryNotFound", uint64(LibraryNotFound), uint64(nvidia.ERROR_LIBRARY_NOT_FOUND)},
		{"FunctionNotFound", uint64(FunctionNotFound), uint64(nvidia.ERROR_FUNCTION_NOT_FOUND)},
		{"GPUIsLost", uint64(GPUIsLost), uint64(nvidia.ERROR_GPU_IS_LOST)},
		{"NoData", uint64(NoData), uint64(nvidia.ERROR_NO_DATA)},
		{"Deprecated", uint64(Deprecated), uint64(nvidia.ERROR_DEPRECATED)},
		{"GPUNotFound", uint64(GPUNotFound), uint64(nvidia.ERROR_GPU_NOT_FOUND)},
	}
	for _, tt := range tests {
		if tt.ours != tt.theirs {
			t.Errorf("%s is %d, NVIDIA's %d", tt.name, tt.ours, tt.theirs)
		}
	}
	for code := range Code(2000) {
		theirs, known := strings.CutPrefix(nvidia.Return(code).Error(), "ERROR_")
		if code == Success {
			known = true
		}
		if !known {
			theirs = fmt.Sprintf("code %d", uint32(code))
		}
		if ours := code.String(); ours != theirs {
			t.Errorf("code %d is %s, NVIDIA's %s", uint32(code), ours, theirs)
		}
	}
}
