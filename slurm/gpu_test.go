package slurm

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParseDevices(t *testing.T) {
	const gpu, mig = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
		"MIG-0a3c1f22-5b6d-5c7e-9d11-2f3a4b5c6d7e"
	for list, want := range map[string]string{
		"":                         "",
		"0":                        "0",
		"2,0":                      "2 0",
		" 0 , 1 ":                  "0 1",
		"0-2,5":                    "0 1 2 5",
		"0,-1,1":                   "0", // CUDA's own example
		"-1":                       "",
		"NoDevFiles":               "",
		"none":                     "",
		"0,0,1":                    "0",
		"0,00,1":                   "0",
		"3-1":                      "",
		"0-4000":                   "",
		"0,,1":                     "0",
		gpu:                        gpu,
		"GPU-8932f937,GPU-4f":      "GPU-8932f937 GPU-4f",
		"GPU-":                     "",
		"GPU-xyz":                  "",
		mig + ",0":                 mig + " 0",
		"MIG-" + gpu + "/1/0":      "MIG-" + gpu + "/1/0",
		"MIG-" + gpu + "/1":        "",
		"MIG-" + gpu + "/1/-1":     "",
		"MIG-" + gpu + "/1/0,/1/0": "MIG-" + gpu + "/1/0",
		"+1":                       "",
		"99999999999999999999":     "",
	} {
		if got := strings.Join(ParseDevices(list), " "); got != want {
			t.Errorf("ParseDevices(%q) = %q, want %q", list, got, want)
		}
	}
}

func TestDetectGPUs(t *testing.T) {
	for _, c := range []struct {
		env           string
		count, onNode int
		visible       string
		source        string
	}{
		{"", Absent, Absent, "", ""},
		{"CUDA_VISIBLE_DEVICES=", 0, Absent, "", "CUDA_VISIBLE_DEVICES"},
		{"CUDA_VISIBLE_DEVICES=NoDevFiles", 0, Absent, "", "CUDA_VISIBLE_DEVICES"},
		{
			"CUDA_VISIBLE_DEVICES=1 SLURM_GPUS_ON_NODE=4 SLURM_STEP_GPUS=4,5,6,7", 1, 4,
			"1",
			"CUDA_VISIBLE_DEVICES",
		},
		{
			"SLURM_STEP_GPUS=2,3 SLURM_JOB_GPUS=0,1,2,3 SLURM_GPUS_ON_NODE=2", 2, 4,
			"2 3",
			"SLURM_STEP_GPUS",
		},
		{
			"SLURM_STEP_GPUS= SLURM_JOB_GPUS=0-3", 4, 4,
			"0 1 2 3",
			"SLURM_JOB_GPUS",
		},
		{"SLURM_GPUS_ON_NODE=3", 3, 3, "", "SLURM_GPUS_ON_NODE"},
		{"SLURM_GPUS_PER_NODE=a100:4", 4, 4, "", "SLURM_GPUS_PER_NODE"},
		{"SLURM_GPUS_PER_NODE=a100:3,v100:1 SLURM_GPUS_ON_NODE=0", 0, 4, "", "SLURM_GPUS_ON_NODE"},
		{"SLURM_GPUS_PER_NODE=many", Absent, Absent, "", ""},
		{
			"ROCR_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=8", 2, 8,
			"0 1",
			"ROCR_VISIBLE_DEVICES",
		},
	} {
		env := variablesOf(strings.Fields(c.env))
		got := DetectGPUs(func(name string) (string, bool) { v, set := env[name]; return v, set })
		if got.Count != c.count || got.OnNode != c.onNode || got.Source != c.source ||
			strings.Join(got.Visible, " ") != c.visible {
			t.Errorf("DetectGPUs(%s) = %+v", c.env, got)
		}
	}
	get := environment(t, "mig")
	got := DetectGPUs(func(name string) (string, bool) { v := get(name); return v, v != "" })
	if got.Count != 1 || got.OnNode != 2 || !strings.HasPrefix(got.Visible[0], "MIG-") {
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
		for _, d := range devices {
			if _, err := strconv.Atoi(d); err != nil && !strings.HasPrefix(d, "GPU-") &&
				!strings.HasPrefix(d, "MIG-") {
				t.Fatalf("%q is neither an index nor a name", d)
			}
		}
		if again := ParseDevices(strings.Join(devices, ",")); !slices.Equal(again, devices) {
			t.Fatalf("%q became %q", devices, again)
		}
	})
}
