package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Print writes the list for people: a line a finding, below it what to do, and at the end how many
// there are of each state.
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
	_, err := fmt.Fprintf(w, "%d good, %s, %d bad\n", number[Good], plural(number[Warning], "warning"),
		number[Bad])
	return err
}

// everywhere says whether a finding holds on all nodes that its check ran on.
func everywhere(f Finding, findings []Finding) bool {
	for _, other := range findings {
		if other.Check == f.Check && other.Node != f.Node {
			return false
		}
	}
	return true
}

// oneLine makes one line of a text that programs and file systems have a part in.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// PrintJSON writes the list for programs: one array of {check, status, detail, advice}, with
// several ranks also node.
func PrintJSON(w io.Writer, findings []Finding) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if findings == nil {
		findings = []Finding{}
	}
	return encoder.Encode(findings)
}
