package top

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const topKeys = "q ends   s sorts by stall   arrows move"

// Escapes of a terminal.
//
// Source: XTerm Control Sequences, private modes 1049 (alternate screen) and 25 (cursor).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	eraseLine   = "\x1b[2K"
	eraseBelow  = "\x1b[J"
)

// A topScreen is a terminal that top draws on.
type topScreen struct {
	in, out *os.File
	before  *term.State // of in; nil if that is not a terminal
}

// openScreen switches the terminal to top's screen; close restores it.
func openScreen(in, out *os.File) (*topScreen, error) {
	s := &topScreen{in: in, out: out}
	if term.IsTerminal(int(in.Fd())) {
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return nil, err
		}
		s.before = before
	}
	if _, err := out.WriteString(enterScreen); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *topScreen) close() error {
	_, err := s.out.WriteString(leaveScreen)
	if s.before != nil {
		err = errors.Join(err, term.Restore(int(s.in.Fd()), s.before))
	}
	return err
}

// size returns the columns and lines of the terminal.
func (s *topScreen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// draw shows lines, which must fit.
func (s *topScreen) draw(lines []line, colors bool) error {
	var b strings.Builder
	b.WriteString(toTop)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		// erase first: after a full line, the cursor is still on its last character
		b.WriteString(eraseLine + l.text(colors))
	}
	if len(lines) > 0 {
		b.WriteString("\r\n")
	}
	b.WriteString(eraseBelow)
	_, err := s.out.WriteString(b.String())
	return err
}

// readKeys sends the keys that are typed until in ends.
func readKeys(in *os.File) <-chan string {
	keys := make(chan string)
	go func() {
		defer close(keys)
		b := make([]byte, 64)
		for {
			n, err := in.Read(b)
			for _, key := range splitKeys(string(b[:n])) {
				keys <- key
			}
			if err != nil {
				return
			}
		}
	}()
	return keys
}

// splitKeys splits the input of a terminal into keys: bytes, and the escape sequences of special
// keys.
//
// Source: ECMA-48, 5.4 Control sequences: they end with a byte in 0x40 to 0x7e.
func splitKeys(typed string) []string {
	var keys []string
	for typed != "" {
		n := 1
		if strings.HasPrefix(typed, "\x1b[") || strings.HasPrefix(typed, "\x1bO") {
			for n = 2; n < len(typed) && (typed[n] < 0x40 || typed[n] > 0x7e); n++ {
			}
			n = min(n+1, len(typed))
		}
		keys = append(keys, typed[:n])
		typed = typed[n:]
	}
	return keys
}

// readings polls the door until ctx ends, and then closes the channel.
func (t *run) readings(ctx context.Context) <-chan reading {
	to := make(chan reading)
	go func() {
		defer close(to)
		defer t.door.close()
		for {
			select {
			case to <- t.door.read():
			case <-ctx.Done():
				return
			}
			if pause(ctx, t.Interval) != nil {
				return
			}
		}
	}()
	return to
}

// live draws on a terminal until the user quits or the run ends.
func (t *run) live(parent context.Context, in, out *os.File) (err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	first := t.door.read()
	if first.err != nil {
		return first.err
	}
	t.add(first)
	screen, err := openScreen(in, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, screen.close()) }()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	keys, readings := readKeys(in), t.readings(ctx)
	for {
		t.view.width, t.view.height = screen.size()
		t.view.height-- // leave a line for the cursor
		if err := screen.draw(t.view.withKeys(), t.colors); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case key, open := <-keys:
			if !open {
				keys = nil // no more input
			} else if t.view.obey(key) {
				return nil
			}
		case r := <-readings:
			if t.add(r) {
				return nil
			}
		case <-resized:
		}
	}
}

// withKeys appends a line that explains the keys, if there is room.
func (v *view) withKeys() []line {
	keys := styled(faint, "%s", topKeys).cut(v.width)
	v.height -= 2
	defer func() { v.height += 2 }()
	return append(v.frame(), nil, keys)
}

// obey handles a key; quit is true for the key that quits.
func (v *view) obey(key string) (quit bool) {
	page := max(1, v.height-10)
	switch key {
	case "q", "Q", "\x03", "\x04": // the last two: Ctrl-C, Ctrl-D
		return true
	case "s":
		v.byStall = !v.byStall
		v.skip = 0
	case "j", "\x1b[B", "\x1bOB":
		v.skip++
	case "k", "\x1b[A", "\x1bOA":
		v.skip--
	case " ", "\x1b[6~":
		v.skip += page
	case "b", "\x1b[5~":
		v.skip -= page
	case "g", "\x1b[H":
		v.skip = 0
	case "G", "\x1b[F":
		v.skip = len(v.rows)
	}
	v.skip = max(0, min(v.skip, len(v.rows)-1))
	return false
}
