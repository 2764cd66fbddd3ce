package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize/english"
)

// Print prints the list: a line per finding, with advice below it, and at the end the number of
// findings of each status.
func Print(w io.Writer, findings []Finding) error {
	wide := 0
	for _, f := range findings {
		wide = max(wide, len(f.Check))
	}
	number := map[Status]int{}
	for _, f := range findings {
		number[f.Status]++
		node := ""
		if f.Node != "" && !everywhere(f, findings) {
			node = f.Node + ": "
		}
		line := fmt.Sprintf("%-7s  %-*s  %s%s\n", f.Status, wide, f.Check, node, oneLine(f.Detail))
		if f.Advice != "" {
			line += fmt.Sprintf("%*s-> %s\n", len("warning")+2+wide+2, "", oneLine(f.Advice))
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d good, %s, %d bad\n", number[Good],
		english.Plural(number[Warning], "warning", ""), number[Bad])
	return err
}

// everywhere reports whether a finding holds on all nodes that its check ran on.
func everywhere(f Finding, findings []Finding) bool {
	for _, other := range findings {
		if other.Check == f.Check && other.Node != f.Node {
			return false
		}
	}
	return true
}

// oneLine turns text that comes from programs and file systems into one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// PrintJSON prints the list as JSON: one array of {check, status, detail, advice}, with several
// ranks also node.
func PrintJSON(w io.Writer, findings []Finding) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if findings == nil {
		findings = []Finding{}
	}
	return encoder.Encode(findings)
}
