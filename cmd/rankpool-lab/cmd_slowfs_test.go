package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"rankpool/benchmarks/slowfs"
)

// TestSlowfs mounts as the command does, reads a file, and ends it as a signal would.
func TestSlowfs(t *testing.T) {
	source, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "one"), []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := slowfs.Load("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := mountSlowfs(ctx, source, dir, options, out)
		_ = out.CloseWithError(err)
		ended <- err
	}()
	line := make([]byte, 100)
	if n, err := said.Read(line); err != nil || string(line[:n]) != "mounted at "+dir+"\n" {
		t.Fatalf("it said %q, %v", line[:n], err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "one")); err != nil || string(got) != "bytes" {
		t.Errorf("the file has %q, %v", got, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("after its end the folder has %v, %v", left, err)
	}
}
