package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/rankpool/internal/world"
)

// lastWords is how long a process that outlives its parent in the cache may delay the report that
// the cache has ended, since it may still print.
const lastWords = 200 * time.Millisecond

// A command is a process to start.
type command struct {
	args   []string // args[0] is a path, or a name in $PATH
	env    []string
	stdin  io.Reader // nil: /dev/null
	stdout io.Writer // nil: /dev/null
	// part of the cache: its output, also on stdout, consists of messages, and run does not wait for
	// it
	ours bool
	// what the process begins with blocked, as do its children: no such signal may end it before it
	// has installed its handlers
	blocked []syscall.Signal
	// the number of its training, and how many there are; with several, output lines carry the number
	training, among int
}

// A process is a child of the launcher and leads its own process group, so that Ctrl-C at the
// terminal reaches it only if the launcher passes it on.
type process struct {
	name     string
	training int // the number of its training
	pid      int
	cmd      *exec.Cmd
	end      syscall.Signal // asks it to end
	over     bool           // the launcher has seen its end
}

// userSignals are those of sbatch --signal.
var userSignals = []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2}

// cacheCommand returns a command that starts ranks.
func cacheCommand(args, env []string) command {
	return command{args: args, env: env, ours: true, blocked: userSignals}
}

// start starts c and sends its end to exits. The child is asked to end when the calling thread
// ends, so the caller must be locked to a thread that lives as long as the launcher.
//
// Source: Linux, prctl(2), PR_SET_PDEATHSIG: the "parent" is the thread that forked.
func start(name string, c command, exits chan<- *process) (*process, error) {
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.env, c.stdin, c.stdout, os.Stderr
	outputEnds := func() {}
	if c.among > 1 { // workers of a trainer that has ended may still have its stdout
		out, err := prefixes(c.training)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, err, lastWords
		outputEnds = func() { out.end(); err.end() }
	}
	if c.ours { // an mpirun that waits for stderr would not see that a rank is dead
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = outlet.Stderr, outlet.Stderr, lastWords
		// In a working folder that was removed mpirun ends, or crashes. All paths are absolute.
		if _, err := os.Getwd(); err != nil {
			cmd.Dir, cmd.Env = "/", world.WithEnv(c.env, map[string]string{"PWD": "/"})
		}
	}
	end := syscall.SIGTERM
	if slices.Contains(c.blocked, end) {
		end = syscall.SIGINT
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: end}
	how, signals := unix.SIG_UNBLOCK, userSignals
	if len(c.blocked) > 0 {
		how, signals = unix.SIG_BLOCK, c.blocked
	}
	if err := withMask(how, signals, cmd.Start); err != nil {
		return nil, fmt.Errorf("%s cannot be started: %w", name, err)
	}
	p := &process{
		name: name, training: c.training, pid: cmd.Process.Pid, cmd: cmd, end: end,
	}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		outputEnds()
		exits <- p
	}()
	return p, nil
}

// withMask calls f with signals blocked or unblocked on this thread; a process that f starts
// inherits the mask.
func withMask(how int, signals []syscall.Signal, f func() error) error {
	var set, old unix.Sigset_t
	for _, s := range signals {
		set.Val[0] |= 1 << (s - 1)
	}
	if err := unix.PthreadSigmask(how, &set, &old); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }() // it was this thread's
	return f()
}

// signal sends s to the process and its group. ESRCH means that all of them are gone.
func (p *process) signal(s syscall.Signal) { _ = unix.Kill(-p.pid, s) }

// code returns the exit code of a finished process: its own, or 128+n for signal n.
func (p *process) code() int {
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return exit.BySignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// how describes how a process ended.
func (p *process) how() string {
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return fmt.Sprintf("signal %d, %s", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}

// signalDescendants sends s to the processes that a process has started, and to those that these
// have started.
func signalDescendants(pid int, s syscall.Signal) {
	for _, child := range descendants(pid) {
		_ = unix.Kill(child, s) // it may have ended
	}
}

// descendants returns the living processes that a process has started, and those that these have
// started.
func descendants(pid int) (all []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // empty without /proc
	for _, path := range stats {
		parent, lives := readStat(path)
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); lives && err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	all = children[pid]
	for at := 0; at < len(all); at++ {
		all = append(all, children[all[at]]...)
	}
	return all
}

// readStat reads the stat file of a process, and returns its parent and whether it lives.
func readStat(path string) (parent int, lives bool) {
	text, err := os.ReadFile(path)
	after := text[bytes.LastIndexByte(text, ')')+1:] // a name may have brackets
	var state byte
	_, bad := fmt.Sscanf(string(after), " %c %d", &state, &parent)
	return parent, err == nil && bad == nil && state != 'Z'
}

// hasChildren reports whether a process has a living child, or that cannot be determined.
//
// Source: Linux, proc(5), /proc/PID/task/TID/children.
func hasChildren(pid int) bool {
	// the pattern is well formed
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	known := false
	for _, list := range lists {
		text, err := os.ReadFile(list)
		known = known || err == nil
		for child := range bytes.FieldsSeq(text) {
			if _, lives := readStat("/proc/" + string(child) + "/stat"); lives {
				return true
			}
		}
	}
	return !known
}
