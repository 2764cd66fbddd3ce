package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// counted holds an epoch's counts from the run log.
type counted struct {
	Event         string
	Epoch         int
	Draws         int64
	StorageReads  int64 `json:"storage_reads"`
	FallbackReads int64 `json:"fallback_reads"`
}

// train runs a Python script of this folder under "rankpool run", and returns its result and the
// run log's counts.
func (b *bench) train(dataDir, memory, script string, result any, args ...string) (
	[]counted, error,
) {
	out, log := filepath.Join(b.dir, "result.json"), filepath.Join(b.dir, "run.jsonl")
	_ = os.Remove(log) // The log of an earlier run, if there was one.
	flags := []string{"--data", dataDir, "--memory", memory, "--log", log}
	if err := b.runTool(flags, script, append([]string{"--out", out}, args...)...); err != nil {
		return nil, err
	}
	if err := readJSON(out, result); err != nil {
		return nil, err
	}
	return readLog(log)
}

// runTool runs a Python script of this folder under "rankpool run".
func (b *bench) runTool(flags []string, script string, args ...string) error {
	command := append(append([]string{"run"}, flags...), "--", b.python, "benchmarks/"+script)
	run := exec.Command(b.tool, append(command, args...)...)
	// The manifest of a short-lived data set stays out of the user's cache.
	run.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(b.dir, "cache"))
	if said, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("%s under rankpool run: %w\n%s", script, err, said)
	}
	return nil
}

// readJSON reads a script's result.
func readJSON(path string, result any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("the result in %s: %w", path, err)
	}
	return nil
}

// readLog returns the lines of the epochs in a run log.
func readLog(path string) ([]counted, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var epochs []counted
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c counted
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("the run log: %w", err)
		}
		if c.Event == "epoch" {
			epochs = append(epochs, c)
		}
	}
	return epochs, lines.Err()
}

// inChild runs one of the children, preceded by the words of a launcher if there are any, and reads
// its result.
func inChild(launcher []string, result any, name string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := append(append([]string{}, launcher...),
		append([]string{self, "child", name}, args...)...)
	child := exec.Command(command[0], command[1:]...)
	// Containers run as root.
	child.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	var said bytes.Buffer
	child.Stderr = &said
	text, err := child.Output()
	if err != nil {
		return fmt.Errorf("child %s: %w\n%s", name, err, said.Bytes())
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("the result of child %s: %w", name, err)
	}
	return nil
}
