package top

import (
	"context"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

const topKeys = "q ends   s sorts by stall   arrows move"

// A screen is a run on a terminal, as a model of Bubble Tea.
type screen struct {
	*run
}

// live draws on a terminal until the user quits or the run ends.
func (t *run) live(ctx context.Context, in, out *os.File) error {
	first := t.door.read()
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
	_, err := tea.NewProgram(screen{t}, options...).Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return s.read }

func (s screen) read() tea.Msg { return s.door.read() }

// Update implements tea.Model.
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case reading:
		if s.add(msg) {
			return s, tea.Quit
		}
		return s, tea.Tick(s.Interval, func(time.Time) tea.Msg { return s.read() })
	case tea.WindowSizeMsg:
		s.view.width, s.view.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		if s.view.obey(msg.String()) {
			return s, tea.Quit
		}
	}
	return s, nil
}

// View implements tea.Model.
func (s screen) View() tea.View {
	var lines []string
	if s.view.height > 0 { // the terminal's size is known
		lines = s.shown(s.view.withKeys())
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}

// withKeys appends a line that explains the keys, if there is room.
func (v *view) withKeys() []string {
	v.height -= 2
	defer func() { v.height += 2 }()
	return append(v.frame(), "", ansi.Truncate(faint.Render(topKeys), v.width, ""))
}

// obey handles a key; quit is true for the key that quits.
func (v *view) obey(key string) (quit bool) {
	page := max(1, v.height-10)
	switch key {
	case "q", "Q", "ctrl+c", "ctrl+d":
		return true
	case "s":
		v.byStall = !v.byStall
		v.skip = 0
	case "down":
		v.skip++
	case "up":
		v.skip--
	case "space", "pgdown":
		v.skip += page
	case "pgup":
		v.skip -= page
	case "home":
		v.skip = 0
	case "end":
		v.skip = len(v.rows)
	}
	v.skip = max(0, min(v.skip, len(v.rows)-1))
	return false
}
