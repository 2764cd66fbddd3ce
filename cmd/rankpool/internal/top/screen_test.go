package top

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
)

// A pseudoTerminal is the two ends of a terminal, and its output.
type pseudoTerminal struct {
	person, program *os.File
	mu              sync.Mutex
	shown           strings.Builder
	news            chan struct{} // has one when something has come
}

func openPseudoTerminal(t *testing.T, columns, lines uint16) *pseudoTerminal {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	check(err)
	check(unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	check(err)
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	check(err)
	p := &pseudoTerminal{person: person, program: program, news: make(chan struct{}, 1)}
	p.resize(t, columns, lines)
	var read sync.WaitGroup
	read.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := person.Read(b)
			p.mu.Lock()
			p.shown.Write(b[:n])
			p.mu.Unlock()
			select {
			case p.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		program.Close() // reading ends with the last program
		read.Wait()
		person.Close()
	})
	return p
}

func (p *pseudoTerminal) resize(t *testing.T, columns, lines uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.program.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: lines, Col: columns}); err != nil {
		t.Fatal(err)
	}
}

func (p *pseudoTerminal) mode(t *testing.T) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(p.program.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

func (p *pseudoTerminal) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown.String()
}

// wait returns when condition holds for the output since the last wait, and then discards that.
func (p *pseudoTerminal) wait(t *testing.T, ended <-chan struct{}, condition func(string) bool) {
	t.Helper()
	for {
		text := p.text()
		if condition(text) {
			p.mu.Lock()
			p.shown.Reset()
			p.mu.Unlock()
			return
		}
		select {
		case <-p.news:
		case <-ended:
			t.Fatalf("top ended after\n%q", p.text())
		}
	}
}

func (p *pseudoTerminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.person.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// TestMain runs top itself if a test has started this program on a terminal.
func TestMain(m *testing.M) {
	if os.Getenv("RANKPOOL_TEST_TOP") == "" {
		os.Exit(m.Run())
	}
	o := Options{Color: "auto"}
	flag.StringVar(&o.Session, "session", "", "")
	flag.DurationVar(&o.Interval, "interval", time.Second, "")
	flag.Parse()
	err := o.Run(context.Background())
	if exit.Speaks(err) {
		fmt.Fprintln(os.Stderr, "rankpool:", err)
	}
	os.Exit(exit.Code(err))
}

// onTerminal starts top on a terminal of its own; ended is closed when it has ended.
func onTerminal(
	t *testing.T, p *pseudoTerminal, args ...string,
) (cmd *exec.Cmd, ended chan struct{}) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.program, p.program, p.program
	cmd.Env = append(os.Environ(), "RANKPOOL_TEST_TOP=1", "TERM=xterm-256color", "NO_COLOR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	// If this process ignores a signal, as under nohup, top would ignore it too.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(caught)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state is looked at below
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return cmd, ended
}

func has(all ...string) func(string) bool {
	return func(text string) bool {
		return !slices.ContainsFunc(all, func(s string) bool { return !strings.Contains(text, s) })
	}
}

// Escapes of a terminal.
//
// Source: XTerm Control Sequences, private mode 1049 (alternate screen).
const (
	enterScreen = "\x1b[?1049h"
	leaveScreen = "\x1b[?1049l"
)

func TestTopOnATerminal(t *testing.T) {
	d := openNodesDoor(t, shortDir(t), "rankpool-0-slurm77", 0, running(40))
	p := openPseudoTerminal(t, 200, 30)
	before := p.mode(t)
	cmd, ended := onTerminal(t, p, "--session", d.dir, "--interval", "1h")
	p.wait(t, ended, has(enterScreen, "\x1b[1mrankpool", "nid001", "nid019", "q ends"))
	if p.mode(t).Lflag&unix.ICANON != 0 {
		t.Error("keys wait for the end of a line")
	}
	p.press(t, "q")
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != exit.OK {
		t.Errorf("exit code %d, want 0", code)
	}
	wantRestored(t, p, before)
}

// TestKeysAndSizes checks what the screen shows after each key and each size of the terminal.
func TestKeysAndSizes(t *testing.T) {
	v := viewOf(40)
	v.width, v.height = 200, 30
	s := screen{&run{view: v}}
	press := func(k tea.Key) tea.Msg { return tea.KeyPressMsg(k) }
	letter := func(r rune) tea.Msg { return press(tea.Key{Code: r, Text: string(r)}) }
	for _, c := range []struct {
		name string
		msg  tea.Msg
		want string
	}{
		{"no key", nil, "nodes 1 to 21 of 40"},
		{"down", press(tea.Key{Code: tea.KeyDown}), "nodes 2 to 22 of 40"},
		{"up", press(tea.Key{Code: tea.KeyUp}), "nodes 1 to 21 of 40"},
		{"up at the top", press(tea.Key{Code: tea.KeyUp}), "nodes 1 to 21 of 40"},
		{"end", press(tea.Key{Code: tea.KeyEnd}), "nodes 20 to 40 of 40"},
		{"home", press(tea.Key{Code: tea.KeyHome}), "nodes 1 to 21 of 40"},
		{"page down", press(tea.Key{Code: tea.KeyPgDown}), "nodes 20 to 40 of 40"},
		{"page up", press(tea.Key{Code: tea.KeyPgUp}), "nodes 1 to 21 of 40"},
		{"space", press(tea.Key{Code: tea.KeySpace, Text: " "}), "nodes 20 to 40 of 40"},
		{"an unknown key", press(tea.Key{Code: tea.KeyF5}), "nodes 20 to 40 of 40"},
		{"s", letter('s'), "nodes 1 to 21 of 40"},
		{"a small terminal", tea.WindowSizeMsg{Width: 60, Height: 16}, "nodes 1 to 7 of 40"},
	} {
		_, quit := s.Update(c.msg)
		if text := s.View().Content; !strings.Contains(text, c.want) || quit != nil {
			t.Errorf("%s: want %q, and no end, in\n%s", c.name, c.want, text)
		}
	}
	if !s.view.byStall {
		t.Error("s does not sort by stall")
	}
	for name, key := range map[string]tea.Key{
		"q": {Code: 'q', Text: "q"}, "Ctrl-C": {Code: 'c', Mod: tea.ModCtrl},
		"Ctrl-D": {Code: 'd', Mod: tea.ModCtrl},
	} {
		if _, quit := s.Update(press(key)); quit == nil {
			t.Errorf("%s does not end top", name)
		}
	}
}

func TestTopGivesTheTerminalBackAfterASignal(t *testing.T) {
	d := openNodesDoor(t, shortDir(t), "s", 0, running(2))
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		p := openPseudoTerminal(t, 80, 24)
		before := p.mode(t)
		cmd, ended := onTerminal(t, p, "--session", d.dir)
		p.wait(t, ended, has("q ends"))
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		<-ended
		if code := cmd.ProcessState.ExitCode(); code != exit.BySignal+int(s) {
			t.Errorf("%v: exit code %d, want %d", s, code, exit.BySignal+int(s))
		}
		wantRestored(t, p, before)
	}
}

func wantRestored(t *testing.T, p *pseudoTerminal, before unix.Termios) {
	t.Helper()
	if after := p.mode(t); after != before {
		t.Errorf("the terminal's mode is %+v, and was %+v", after, before)
	}
	p.program.Close()
	never := make(chan struct{})
	p.wait(t, never, has(leaveScreen))
}
