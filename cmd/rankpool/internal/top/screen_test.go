package top

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

// TestKeysAndSizes checks what the screen shows after each key and each size of the terminal.
func TestKeysAndSizes(t *testing.T) {
	s := &screen{run: viewOf(40), width: 200, height: 31}
	press := func(k tea.Key) tea.Msg { return tea.KeyPressMsg(k) }
	letter := func(r rune) tea.Msg { return press(tea.Key{Code: r, Text: string(r)}) }
	for _, c := range []struct {
		name string
		msg  tea.Msg
		// in the first and the last line above the keys
		first, last string
	}{
		{"no key", nil, "rankpool top", "nid024"},
		{"down", press(tea.Key{Code: tea.KeyDown}), "the node's memory", "nid025"},
		{"up", press(tea.Key{Code: tea.KeyUp}), "rankpool top", "nid024"},
		{"up at the top", press(tea.Key{Code: tea.KeyUp}), "rankpool top", "nid024"},
		{"end", press(tea.Key{Code: tea.KeyEnd}), "nid011", "nid040"},
		{"home", press(tea.Key{Code: tea.KeyHome}), "rankpool top", "nid024"},
		{"page down", press(tea.Key{Code: tea.KeyPgDown}), "nid011", "nid040"},
		{"page up", press(tea.Key{Code: tea.KeyPgUp}), "rankpool top", "nid024"},
		{"space", press(tea.Key{Code: tea.KeySpace, Text: " "}), "nid011", "nid040"},
		{"an unknown key", press(tea.Key{Code: tea.KeyF5}), "nid011", "nid040"},
		{"s", letter('s'), "rankpool top", "nid024"},
		{"a small terminal", tea.WindowSizeMsg{Width: 60, Height: 16}, "rankpool top", "nid009"},
	} {
		_, quit := s.Update(c.msg)
		lines := strings.Split(s.View().Content, "\n")
		n := len(lines)
		if n > s.height || lipgloss.Width(lines[3]) > s.width || quit != nil ||
			!strings.Contains(lines[0], c.first) || !strings.Contains(lines[n-2], c.last) ||
			!strings.Contains(lines[n-1], "q ends") {
			t.Errorf("%s: want %q to %q, and no end, in\n%s", c.name, c.first, c.last, s.View().Content)
		}
	}
	if !s.byStall {
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
