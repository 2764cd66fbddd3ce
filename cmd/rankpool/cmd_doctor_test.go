package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"rankpool/nvml/nvmltest"
)

// TestDoctorGPUs: a lost GPU does not affect the findings of others, and is bad if the job has it.
func TestDoctorGPUs(t *testing.T) {
	library := filepath.Dir(nvmltest.Build(t))
	for _, c := range []struct {
		env, want string
		code      int
	}{
		{"CUDA_VISIBLE_DEVICES=0", `^good     gpu  GPUs: 1 × Fake H200\n1 good`, 0},
		{"CUDA_VISIBLE_DEVICES=3", `^bad      gpu  GPU 3: nvml: nvmlDeviceGetUUID: GPU_IS_LOST, and the job has it \(CUDA_VISIBLE_DEVICES=3\)\n`, 1},
		{"CUDA_VISIBLE_DEVICES=1,3", `^good     gpu  GPUs: 1 × Fake H200\nbad      gpu  GPU 3: `, 1},
		{"SLURM_STEP_GPUS=", `^good     gpu  GPUs: 2 × Fake H200, 2 × Fake A100 MIG 3g.20gb\nwarning  gpu  GPU 3: [^\n]*GPU_IS_LOST\n`, 0},
	} {
		cmd := exec.CommandContext(t.Context(), "rankpool", "doctor", "--only", "gpu")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + library, c.env}
		out, err := cmd.Output()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != c.code || !regexp.MustCompile(c.want).Match(out) {
			t.Errorf("%s: exit code %d, want %d, and\n%swant %s", c.env, code, c.code, out, c.want)
		}
	}
}
