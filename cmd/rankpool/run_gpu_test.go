package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/nvml/nvmltest"
)

// A run starts, trains and ends while the driver hangs.
func TestRunWithHangingDriver(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data", "cat")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "1"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	runtime, err := os.MkdirTemp("", "rp") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	library, _ := nvmltest.BuildHanging(t) // is never released
	cmd := exec.CommandContext(t.Context(), "rankpool", "run", "--ranks", "1", "--runtime-dir",
		runtime,
		"--data", filepath.Dir(data), "--memory", "1MiB", "--", "echo", "trained")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(library),
		"CUDA_VISIBLE_DEVICES=0", "XDG_CACHE_HOME="+dir)
	cmd.Stderr = os.Stderr
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "trained\n") {
		t.Errorf("it printed %q: %v", out, err)
	}
}
