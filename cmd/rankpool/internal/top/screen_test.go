package top

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

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
