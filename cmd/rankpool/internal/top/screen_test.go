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
	exit.Print(os.Stderr, "rankpool", err)
	os.Exit(exit.Code(err))
}

// onTerminal starts top on a terminal of its own; ended is closed when it has ended.
func onTerminal(
	t *testing.T, p *pseudoTerminal, env []string, args ...string,
) (cmd *exec.Cmd, ended chan struct{}) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.program, p.program, p.program
	cmd.Env = append(os.Environ(), "RANKPOOL_TEST_TOP=1", "TERM=xterm-256color", "LC_ALL=C.UTF-8",
		"NO_COLOR=")
	cmd.Env = append(cmd.Env, env...)
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

func TestTopOnATerminal(t *testing.T) {
	d := openNodesDoor(t, shortDir(t), "rankpool-0-slurm77", 0, running(40))
	p := openPseudoTerminal(t, 200, 30)
	before := p.mode(t)
	cmd, ended := onTerminal(t, p, nil, "--session", d.dir, "--interval", "1h")
	// After two readings there are rates, and from then on only keys and the terminal's size change
	// the picture.
	p.wait(
		t, ended, has(enterScreen, "\x1b[1mrankpool top\x1b[0m  job 77  40 of 40 ranks", "nid001",
			"█", "  5,000", "nodes 1 to 19 of 40", topKeys))
	if p.mode(t).Lflag&unix.ICANON != 0 {
		t.Error("keys wait for the end of a line")
	}
	p.press(t, "jj\x1b[B")
	p.wait(t, ended, has("nodes 4 to 22 of 40"))
	p.press(t, "G")
	p.wait(t, ended, has("nodes 22 to 40 of 40"))
	p.press(t, "\x1b[A")
	p.wait(t, ended, has("nodes 21 to 39 of 40"))
	p.press(t, "s")
	p.wait(t, ended, has("\x1b[2K   1 nid002"))
	p.resize(t, 60, 16)
	p.wait(t, ended, has("nodes 1 to 5 of 40"))
	p.press(t, "q")
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != exit.OK {
		t.Errorf("exit code %d, want 0", code)
	}
	wantRestored(t, p, before)
}

func TestTopGivesTheTerminalBackAfterASignal(t *testing.T) {
	d := openNodesDoor(t, shortDir(t), "s", 0, running(2))
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		p := openPseudoTerminal(t, 80, 24)
		before := p.mode(t)
		cmd, ended := onTerminal(t, p, nil, "--session", d.dir)
		p.wait(t, ended, has(topKeys))
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

func TestTopWithoutColors(t *testing.T) {
	d := openNodesDoor(t, shortDir(t), "s", 0, running(2))
	p := openPseudoTerminal(t, 200, 24)
	_, ended := onTerminal(t, p, []string{"NO_COLOR=1", "LC_ALL=C"}, "--session", d.dir)
	p.wait(t, ended, func(text string) bool {
		if strings.Contains(text, "\x1b[3") || strings.Contains(text, "█") {
			t.Fatalf("colours or blocks in %q", text)
		}
		return has("5,000", "####")(text)
	})
	p.press(t, "\x03")
	<-ended
}

// A rank that is gone for a while is asked again; with the session's folder top ends.
func TestTopEndsWithTheRun(t *testing.T) {
	base := shortDir(t)
	d := openNodesDoor(t, base, "s", 0, func(asked int) nodesStatus {
		if asked > 3 {
			return nodesStatus{}
		}
		return running(1)(asked)
	})
	p := openPseudoTerminal(t, 200, 24)
	before := p.mode(t)
	cmd, ended := onTerminal(t, p, nil, "--session", d.dir, "--interval", "100ms")
	p.wait(t, ended, has("the rank does not answer; retrying"))
	d.door.Close()
	if err := os.RemoveAll(d.dir); err != nil {
		t.Fatal(err)
	}
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != exit.OK {
		t.Errorf("exit code %d, want 0", code)
	}
	wantRestored(t, p, before)
}

func TestSplitKeys(t *testing.T) {
	for typed, want := range map[string][]string{
		"":                {},
		"q":               {"q"},
		"jk\x1b[Bq":       {"j", "k", "\x1b[B", "q"},
		"\x1b[6~\x1b[5~":  {"\x1b[6~", "\x1b[5~"},
		"\x1bOAs":         {"\x1bOA", "s"},
		"\x1b[1;5":        {"\x1b[1;5"},
		"\x1b":            {"\x1b"},
		"\x1b[1;5D\x1b[A": {"\x1b[1;5D", "\x1b[A"},
	} {
		if got := splitKeys(typed); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

func TestKeysMoveWithinTheNodes(t *testing.T) {
	v := viewOf(5)
	for _, key := range []string{"k", "\x1b[5~", "j", "G", " ", "j"} {
		if v.obey(key) {
			t.Errorf("%q ends", key)
		}
		if v.skip < 0 || v.skip >= 5 {
			t.Errorf("%q: %d rows above", key, v.skip)
		}
	}
	for _, key := range []string{"q", "\x03"} {
		if !v.obey(key) {
			t.Errorf("%q does not end", key)
		}
	}
	if v.byStall {
		t.Error("sorted by stall without a request")
	}
}
