package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// The processes of a group end with it. Like all tests of memory limits, this one needs root, and a
// machine whose control groups may be changed (docs/develop.md).
func TestMemoryGroupEndsWhatIsInIt(t *testing.T) {
	g, err := newMemoryGroup(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	command := g.command([]string{"sh", "-c", "echo in; exec sleep 1000"})
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error)
	go func() { reaped <- command.Wait() }()
	g.remove()
	if err := <-reaped; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v, want a kill", err)
	}
	if _, err := os.Stat(g.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", g.dir, err)
	}
}
