package slurm

import (
	"slices"
	"strings"
	"testing"
)

func index(i int) Device { return Device{Index: i, GPUInstance: Absent, ComputeInstance: Absent} }

func uuid(id string) Device {
	return Device{Index: Absent, UUID: id, GPUInstance: Absent, ComputeInstance: Absent}
}

func TestParseDevices(t *testing.T) {
	const gpu, mig = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
		"MIG-0a3c1f22-5b6d-5c7e-9d11-2f3a4b5c6d7e"
	for list, want := range map[string][]Device{
		"":                         nil,
		"0":                        {index(0)},
		"2,0":                      {index(2), index(0)},
		" 0 , 1 ":                  {index(0), index(1)},
		"0-2,5":                    {index(0), index(1), index(2), index(5)},
		"0,-1,1":                   {index(0)}, // CUDA's own example
		"-1":                       nil,
		"NoDevFiles":               nil,
		"none":                     nil,
		"0,0,1":                    {index(0)},
		"3-1":                      nil,
		"0-4000":                   nil,
		"0,,1":                     {index(0)},
		gpu:                        {uuid(gpu)},
		"GPU-8932f937,GPU-4f":      {uuid("GPU-8932f937"), uuid("GPU-4f")},
		"GPU-":                     nil,
		"GPU-xyz":                  nil,
		mig + ",0":                 {uuid(mig), index(0)},
		"MIG-" + gpu + "/1/0":      {{Index: Absent, UUID: gpu, GPUInstance: 1, ComputeInstance: 0}},
		"MIG-" + gpu + "/1":        nil,
		"MIG-" + gpu + "/1/-1":     nil,
		"MIG-" + gpu + "/1/0,/1/0": {{Index: Absent, UUID: gpu, GPUInstance: 1, ComputeInstance: 0}},
		"+1":                       nil,
		"99999999999999999999":     nil,
	} {
		if got := ParseDevices(list); !slices.Equal(got, want) {
			t.Errorf("ParseDevices(%q) = %+v, want %+v", list, got, want)
		}
	}
}

func TestDetectGPUs(t *testing.T) {
	for _, c := range []struct {
		env           string
		count, onNode int
		visible       []Device
		source        string
	}{
		{"", Absent, Absent, nil, ""},
		{"CUDA_VISIBLE_DEVICES=", 0, Absent, nil, "CUDA_VISIBLE_DEVICES"},
		{"CUDA_VISIBLE_DEVICES=NoDevFiles", 0, Absent, nil, "CUDA_VISIBLE_DEVICES"},
		{
			"CUDA_VISIBLE_DEVICES=1 SLURM_GPUS_ON_NODE=4 SLURM_STEP_GPUS=4,5,6,7", 1, 4,
			[]Device{index(1)},
			"CUDA_VISIBLE_DEVICES",
		},
		{
			"SLURM_STEP_GPUS=2,3 SLURM_JOB_GPUS=0,1,2,3 SLURM_GPUS_ON_NODE=2", 2, 4,
			[]Device{index(2), index(3)},
			"SLURM_STEP_GPUS",
		},
		{
			"SLURM_STEP_GPUS= SLURM_JOB_GPUS=0-3", 4, 4,
			[]Device{index(0), index(1), index(2), index(3)},
			"SLURM_JOB_GPUS",
		},
		{"SLURM_GPUS_ON_NODE=3", 3, 3, nil, "SLURM_GPUS_ON_NODE"},
		{"SLURM_GPUS_PER_NODE=a100:4", 4, 4, nil, "SLURM_GPUS_PER_NODE"},
		{"SLURM_GPUS_PER_NODE=a100:3,v100:1 SLURM_GPUS_ON_NODE=0", 0, 4, nil, "SLURM_GPUS_ON_NODE"},
		{"SLURM_GPUS_PER_NODE=many", Absent, Absent, nil, ""},
		{
			"ROCR_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=8", 2, 8,
			[]Device{index(0), index(1)},
			"ROCR_VISIBLE_DEVICES",
		},
	} {
		env := map[string]string{}
		for _, line := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(line, "=")
			env[name] = value
		}
		got := DetectGPUs(func(name string) (string, bool) { v, set := env[name]; return v, set })
		if got.Count != c.count || got.OnNode != c.onNode || got.Source != c.source ||
			!slices.Equal(got.Visible, c.visible) {
			t.Errorf("DetectGPUs(%s) = %+v", c.env, got)
		}
	}
	get := environment(t, "mig")
	got := DetectGPUs(func(name string) (string, bool) { v := get(name); return v, v != "" })
	if got.Count != 1 || got.OnNode != 2 || !strings.HasPrefix(got.Visible[0].UUID, "MIG-") {
		t.Errorf("DetectGPUs(mig) = %+v", got)
	}
}

func FuzzParseDevices(f *testing.F) {
	for _, seed := range []string{
		"0,1", "0-3", "GPU-8932f937", "MIG-GPU-8932f937/1/0", "NoDevFiles",
		"1,-1", "MIG-1-2/,",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		devices := ParseDevices(list)
		if len(devices) > maxDevices*(1+strings.Count(list, ",")) {
			t.Fatalf("%d devices", len(devices))
		}
		var entries []string
		for _, d := range devices {
			if (d.Index == Absent) == (d.UUID == "") ||
				(d.GPUInstance == Absent) != (d.ComputeInstance == Absent) {
				t.Fatalf("%+v is neither an index nor a name", d)
			}
			entries = append(entries, d.String())
		}
		if again := ParseDevices(strings.Join(entries, ",")); !slices.Equal(again, devices) {
			t.Fatalf("%+v became %+v", devices, again)
		}
	})
}
