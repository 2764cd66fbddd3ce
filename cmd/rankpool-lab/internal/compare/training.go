package compare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool-lab/internal/sidebyside"
)

// seedWord stands for the seed in the training command.
const seedWord = "{seed}"

// Files of a training, in its folder.
const (
	logName    = "run.jsonl"
	outputName = "output.txt"
	resultName = "result.json"
)

// An identity is what must be equal for a result to be reused.
type identity struct {
	Version string   `json:"version"`
	Data    []string `json:"data"`
	Flags   []string `json:"flags"`
	Set     []string `json:"set"`
	Command []string `json:"command"`
	Storage string   `json:"storage"` // the settings of emulated storage
}

// A training is one system with one seed.
type training struct {
	system string
	seed   int
	dir    string
	id     identity
}

// A result is what a training leaves behind in its folder.
type result struct {
	Of           identity `json:"of"`
	System       string   `json:"system"`
	Seed         int      `json:"seed"`
	Reason       string   `json:"reason,omitempty"`        // why it did not end well
	StorageBytes *int64   `json:"storage_bytes,omitempty"` // that emulated storage counted

	run     *runlog.Run // nil when it did not end well
	refused bool        // by run, so that it fails with any seed
}

// training returns the training of a system with a seed.
func (o *Options) training(system string, seed int) training {
	t := training{
		system: system, seed: seed, dir: filepath.Join(o.output, system, fmt.Sprintf("seed-%d", seed)),
		id: identity{Version: version.Text, Data: o.data, Flags: o.flags},
	}
	if o.storage != nil {
		text, _ := os.ReadFile(o.slowfsPath) // it was read before
		t.id.Storage = string(text)
	}
	if o.packages != "" && packs(system) {
		t.id.Set = append(t.id.Set, "packages="+o.packages)
	}
	for _, text := range o.set {
		if name, option, _ := strings.Cut(text, "."); name == system {
			t.id.Set = append(t.id.Set, option)
		}
	}
	for _, word := range o.command {
		t.id.Command = append(t.id.Command, strings.ReplaceAll(word, seedWord, strconv.Itoa(seed)))
	}
	return t
}

// finished returns the result of an earlier training that ended well, nil if there is none. It
// returns an error if the result is that of a different training.
func (t *training) finished() (*result, error) {
	text, err := os.ReadFile(filepath.Join(t.dir, resultName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r result
	if json.Unmarshal(text, &r) != nil || r.Reason != "" {
		return nil, nil
	}
	if !reflect.DeepEqual(r.Of, t.id) {
		return nil, exit.Usagef("%s has a training with other flags, another command or another version "+
			"of rankpool (see %s there): name another folder with -o, or remove this one", t.dir, resultName)
	}
	r.load(t)
	return &r, nil
}

// load reads the training's run log; without an epoch in it there is no result.
func (r *result) load(t *training) {
	run, err := runlog.ReadFiles(filepath.Join(t.dir, logName))
	switch {
	case err != nil:
		r.Reason = err.Error()
	case len(run.Epochs) == 0:
		r.Reason = "no epoch was finished"
	default:
		r.run = run
	}
}

// side returns what the report uses of a result that ended well.
func (r *result) side() sidebyside.SideRun {
	return sidebyside.NewSideRun(r.run, r.StorageBytes)
}

// brief describes in a few words how the training went. The reason of a failure was printed before.
func (r *result) brief() string {
	if r.Reason != "" {
		return "not trained"
	}
	side := r.side()
	return side.Brief()
}

// train runs a training from the beginning and keeps its result.
func (o *Options) train(ctx context.Context, t training) (*result, error) {
	if err := os.RemoveAll(t.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, err
	}
	storage, err := o.mount()
	if err != nil {
		return nil, err
	}
	defer func() { _ = storage.close() }() // after an error, which is returned
	r := &result{Of: t.id, System: t.system, Seed: t.seed}
	if err := o.launch(ctx, r, t.dir, storage.data); err != nil {
		return nil, err
	}
	if r.Reason == "" {
		r.load(&t)
	}
	r.StorageBytes = storage.bytes()
	if err := storage.close(); err != nil {
		say("%v", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return r, os.WriteFile(filepath.Join(t.dir, resultName), append(text, '\n'), 0o644)
}

// launch runs "rankpool run", and sets the reason if training does not end well. The error is the
// signal that ended compare, or why nothing can be started.
func (o *Options) launch(ctx context.Context, r *result, dir string, data []string) error {
	runtime.LockOSThread() // the child gets a signal when this thread ends
	defer runtime.UnlockOSThread()
	rankpool, err := findRankpool()
	if err != nil {
		return err
	}
	system := strings.Join(append([]string{r.System}, r.Of.Set...), ",")
	args := []string{"run", "--system", system, "--log", filepath.Join(dir, logName)}
	for _, flag := range data {
		args = append(args, "--data", flag)
	}
	args = append(append(append(args, r.Of.Flags...), "--"), r.Of.Command...)
	output, err := os.Create(filepath.Join(dir, outputName))
	if err != nil {
		return err
	}
	defer output.Close()
	said := &teller{system: r.System, to: outlet.Stderr}
	cmd := exec.Command(rankpool, args...)
	cmd.Stdout, cmd.Stderr = output, io.MultiWriter(output, said)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.WaitDelay = exit.Patience // for what trainers left behind that has stderr open
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		err = cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Signal(signalOf(ctx)) // it may have ended
		<-ended
		return context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		r.Reason = cmp.Or(said.last, err.Error())
		r.refused = cmd.ProcessState.ExitCode() == exit.Misuse
	}
	return nil
}

// findRankpool returns the program "rankpool": the one beside this program, or else in PATH.
func findRankpool() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if beside := filepath.Join(filepath.Dir(self), "rankpool"); isFile(beside) {
		return beside, nil
	}
	path, err := exec.LookPath("rankpool")
	if err != nil {
		return "", fmt.Errorf("rankpool is neither beside %s nor in PATH: install both", self)
	}
	return path, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func signalOf(ctx context.Context) syscall.Signal {
	if by, found := errors.AsType[exit.SignalError](context.Cause(ctx)); found {
		return by.Signal
	}
	return syscall.SIGTERM
}

// A teller prefixes lines with the system's name, and keeps the line with the reason why training
// failed: the last one, or the one before the message that a trainer has ended.
type teller struct {
	system string
	to     io.Writer
	line   []byte // that has no end yet
	last   string
	ended  bool
}

func (t *teller) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' {
			t.line = append(t.line, c)
			continue
		}
		text := strings.TrimSpace(strings.TrimPrefix(string(t.line), "rankpool: "))
		t.line = t.line[:0]
		if text == "" {
			continue
		}
		fmt.Fprintf(t.to, "%s: %s\n", t.system, text)
		t.ended = t.ended || strings.HasPrefix(text, "trainer ") && strings.Contains(text, " ended (")
		if !t.ended {
			t.last = text
		}
	}
	return len(p), nil
}
