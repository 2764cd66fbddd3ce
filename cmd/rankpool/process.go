package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A command is a process to start.
type command struct {
	args   []string // args[0] is a path, or a name in $PATH
	env    []string
	stdin  *os.File // nil: /dev/null
	stdout *os.File // nil: /dev/null
}

// A process is a child of the launcher, the leader of a process group of its own, so that a Ctrl-C at the
// terminal reaches it only when the launcher passes it on.
type process struct {
	name  string
	pid   int
	begin time.Time
	cmd   *exec.Cmd
	over  bool // the launcher has seen its end
}

// start starts c; its end is sent to exits. The child gets SIGTERM when the calling thread ends, so the caller
// must be locked to a thread that lives as long as the launcher.
//
// Source: Linux, prctl(2), PR_SET_PDEATHSIG: the "parent" is the thread that forked.
func start(name string, c command, exits chan<- *process) (*process, error) {
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Env = c.env
	if c.stdin != nil {
		cmd.Stdin = c.stdin
	}
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s cannot be started: %w", name, err)
	}
	p := &process{name: name, pid: cmd.Process.Pid, begin: time.Now(), cmd: cmd}
	go func() {
		_ = cmd.Wait() // ProcessState has it all
		exits <- p
	}()
	return p, nil
}

// signal sends s to the process and its group.
func (p *process) signal(s syscall.Signal) { _ = unix.Kill(-p.pid, s) } // no such group: all are gone

// code returns the exit code of a process that is over: its own, or 128+n for signal n.
func (p *process) code() int {
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// how says in words how a process ended.
func (p *process) how() string {
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return fmt.Sprintf("signal %d, %s", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}
