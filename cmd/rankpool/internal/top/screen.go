package top

import (
	"context"
	"math"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"golang.org/x/term"
)

const topKeys = "q ends   s sorts by stall   arrows move"

// A screen is a run on a terminal, as a model of Bubble Tea.
type screen struct {
	*run
	width, height int // of the terminal; 0: not known yet
	skip          int // lines scrolled off the top
}

// live draws on a terminal until the user quits or the run ends.
func (t *run) live(ctx context.Context, in, out *os.File) error {
	first := t.read()
	if first.err != nil {
		return first.err
	}
	t.add(first)
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithOutput(out), tea.WithFPS(10),
		tea.WithoutSignalHandler(), // ctx ends with a signal
	}
	if !term.IsTerminal(int(in.Fd())) {
		options = append(options, tea.WithInput(nil))
	}
	_, err := tea.NewProgram(&screen{run: t}, options...).Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Init implements tea.Model.
func (s *screen) Init() tea.Cmd { return s.next }

func (s *screen) next() tea.Msg { return s.read() }

// Update implements tea.Model.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case reading:
		if s.add(msg) {
			return s, tea.Quit
		}
		return s, tea.Tick(s.Interval, func(time.Time) tea.Msg { return s.read() })
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return s, s.obey(msg.String())
	}
	return s, nil
}

// View implements tea.Model.
func (s *screen) View() tea.View {
	var v tea.View
	v.AltScreen = true
	if s.height == 0 {
		return v
	}
	lines := s.frame()
	room := max(1, s.height-1) // below are the keys
	s.skip = max(0, min(s.skip, len(lines)-room))
	lines = append(lines[s.skip:min(len(lines), s.skip+room)], faint.Render(topKeys))
	v.SetContent(lipgloss.NewStyle().MaxWidth(s.width).Render(strings.Join(lines, "\n")))
	return v
}

// obey handles a key.
func (s *screen) obey(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c", "ctrl+d":
		return tea.Quit
	case "s":
		s.byStall, s.skip = !s.byStall, 0
	case "down":
		s.skip++
	case "up":
		s.skip--
	case "space", "pgdown":
		s.skip += s.height - 1
	case "pgup":
		s.skip -= s.height - 1
	case "home":
		s.skip = 0
	case "end":
		s.skip = math.MaxInt32
	}
	return nil
}
