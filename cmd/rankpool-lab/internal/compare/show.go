package compare

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool-lab/internal/sidebyside"
	"rankpool/scheduler/systems"
)

// pageName is the page's file in the output folder.
const pageName = "report.html"

// show writes the page and prints the table.
func (o *Options) show(results []result, out io.Writer) error {
	c := o.comparison(results)
	var page bytes.Buffer
	if err := c.Write(&page, version.Text); err != nil {
		return err
	}
	path := filepath.Join(o.output, pageName)
	if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
		return err
	}
	say("the page is %s", path)
	return printTables(out, &c)
}

// printTables prints a comparison's tables, and which sides were not trained.
func printTables(w io.Writer, c *sidebyside.Comparison) error {
	for _, t := range c.Tables() {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			fmt.Fprintln(table, strings.Join(row, "\t")+"\t")
		}
		fmt.Fprintln(table)
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, s := range c.Sides {
		if s.Missing != "" {
			fmt.Fprintf(w, "%s: not trained: %s\n", s.Name, s.Missing)
		}
	}
	return nil
}

// comparison puts the results side by side.
func (o *Options) comparison(results []result) sidebyside.Comparison {
	c := sidebyside.Comparison{Title: "The same training under each system", Target: o.target}
	for _, name := range o.systems {
		side := sidebyside.Side{Name: name}
		for _, r := range results {
			switch {
			case r.System != name:
			case r.Reason != "":
				side.Missing = r.Reason
			default:
				side.Runs = append(side.Runs, r.side())
			}
		}
		if len(side.Runs) > 0 {
			if side.Missing != "" {
				c.Notes = append(c.Notes, fmt.Sprintf("%s did not end well with %d of %d seeds: %s",
					name, o.seeds-len(side.Runs), o.seeds, side.Missing))
			}
			side.Missing = ""
		}
		c.Sides = append(c.Sides, side)
	}
	c.Summary = o.summary()
	c.Notes = append(c.Notes, o.notes(c.Sides)...)
	return c
}

// summary describes what was compared.
func (o *Options) summary() []string {
	all := []string{fmt.Sprintf("Command: %s.", strings.Join(o.command, " "))}
	given := "Data: " + strings.Join(o.data, ", ") + "."
	if len(o.flags) > 0 {
		given += " Flags: " + strings.Join(o.flags, " ") + "."
	}
	if len(o.set) > 0 {
		given += " Options of systems: " + strings.Join(o.set, ", ") + "."
	}
	if o.slowfsPath != "" {
		given += " Storage: emulated, with the settings of " + filepath.Base(o.slowfsPath) +
			", fresh for each training."
	}
	seeds := "One seed."
	if o.seeds > 1 {
		seeds = fmt.Sprintf("Means over %d seeds, ± one standard deviation.", o.seeds)
	}
	return append(all, given, "Each training began with an empty cache. "+seeds)
}

// notes lists what limits the comparison besides what the runs show.
func (o *Options) notes(sides []sidebyside.Side) []string {
	var notes, order []string
	drawn := map[string][]string{}
	for _, side := range sides {
		s, err := systems.Find(side.Name)
		if err != nil || len(side.Runs) == 0 {
			continue
		}
		if !slices.Contains(order, s.Sampler) {
			order = append(order, s.Sampler)
		}
		drawn[s.Sampler] = append(drawn[s.Sampler], s.Name)
	}
	if len(order) > 1 {
		var parts []string
		for _, sampler := range order {
			parts = append(parts, fmt.Sprintf("%s (%s)", sampler, strings.Join(drawn[sampler], ", ")))
		}
		notes = append(notes, "Systems draw in their own ways, so hits are of different draws. "+
			"Samplers: "+strings.Join(parts, "; ")+".")
	}
	if o.slowfsPath == "" {
		notes = append(notes, "The data were read where they are, and the operating system may have "+
			"kept files of an earlier training in its memory: times do not reflect slow storage. "+
			"--slowfs emulates one.")
	}
	return notes
}
