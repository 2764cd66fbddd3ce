package record

import (
	"fmt"
	"strings"
)

// Bounds of the description of a difference: commands, and bytes of each.
const (
	commandsShown = 10
	lettersShown  = 300
)

// describe describes an event for people.
func describe(event any) string {
	switch e := event.(type) {
	case planned:
		return fmt.Sprintf("Planned{Epoch:%d From:%d Digest:%016x}", e.Epoch, e.From, e.Digest)
	case scored:
		return fmt.Sprintf("Scored{Epoch:%d Batch:%d IDs:%s Total:%v}", e.Epoch, e.Batch,
			short(fmt.Sprint(e.IDs)), e.Total)
	}
	return short(text(event))
}

// text returns the complete text of an event or a command: two are equal if their texts are.
func text(v any) string { return strings.ReplaceAll(fmt.Sprintf("%T%+v", v, v), "scheduler.", "") }

// texts returns the texts of commands, as they came or as they were recorded.
func texts[C any](commands []C) []string {
	all := make([]string, len(commands))
	for i, c := range commands {
		all[i] = text(unbare(c))
	}
	return all
}

func short(text string) string {
	if len(text) <= lettersShown {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:lettersShown], ""), len(text))
}

// describeCommands lists two series of commands from the first that differs.
func describeCommands(a, b []string) (first, second []string) {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	return lines(a, same), lines(b, same)
}

func lines(commands []string, same int) []string {
	var all []string
	if same > 0 {
		all = append(all, fmt.Sprintf("%d commands that are the same", same))
	}
	for i, command := range commands[same:] {
		if i == commandsShown {
			return append(all, fmt.Sprintf("%d more", len(commands)-same-i))
		}
		all = append(all, short(command))
	}
	if len(commands) == same {
		all = append(all, "no more commands")
	}
	return all
}
