package simulate

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"rankpool/cmd/internal/exit"
	"rankpool/scheduler/systems"
)

// A listedSystem is a system in the output of --list --json.
type listedSystem struct {
	System  string           `json:"system"`
	About   string           `json:"about"`
	Source  string           `json:"source"`
	Scorer  string           `json:"scorer"`
	Sampler string           `json:"sampler"`
	Policy  string           `json:"policy"`
	Needs   []string         `json:"needs"` // flags without which it cannot be simulated
	Options []systems.Option `json:"options"`
}

// printList prints the systems that --systems names, and the options of each.
func (o *Options) printList(w io.Writer) error {
	chosen, err := o.chosenSystems()
	if err != nil {
		return err
	}
	var listed []listedSystem
	for _, s := range chosen {
		listed = append(listed, list(s))
	}
	if o.asJSON {
		return printJSONLines(w, listed)
	}
	if o.asCSV {
		return exit.Usagef("--list prints a text, or JSON with --json, but no CSV")
	}
	var text strings.Builder
	for _, s := range listed {
		s.print(&text)
	}
	fmt.Fprintf(&text, "samplers: %s\nscorers: %s\npolicies: %s\n", KnownSamplers(), knownScorers(),
		knownPolicies())
	_, err = io.WriteString(w, text.String())
	return err
}

func list(s *systems.System) listedSystem {
	return listedSystem{
		System: s.Name, About: s.About, Source: s.Source, Scorer: s.Scorer, Sampler: s.Sampler,
		Policy: s.Policy, Needs: needs(s), Options: append([]systems.Option{}, s.Options...),
	}
}

func (l listedSystem) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", l.System, l.About)
	fmt.Fprintf(w, "    source: %s\n", l.Source)
	fmt.Fprintf(w, "    sampler %s, scorer %s, policy %s\n", cmp.Or(l.Sampler, "-"),
		cmp.Or(l.Scorer, "-"), cmp.Or(l.Policy, "-"))
	if len(l.Needs) > 0 {
		fmt.Fprintf(w, "    needs %s\n", strings.Join(l.Needs, " and "))
	}
	for _, o := range l.Options {
		fmt.Fprintf(w, "    --set %s.%s=%v\n        %s (default from: %s)\n", l.System, o.Name,
			o.Default, o.About, o.Source)
	}
	fmt.Fprintln(w)
}
