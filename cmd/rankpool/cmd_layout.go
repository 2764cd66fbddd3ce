package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/progress"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	storage "rankpool/staging/layout"
)

func newLayoutCommand() *cobra.Command {
	var asJSON, quiet bool
	var opt index.OpenOptions
	cmd := &cobra.Command{
		Use:   "layout DIR|MANIFEST",
		Short: "Show how a data set is spread over storage targets",
		Long: `Layout reads how the files of a data set, a folder or a manifest, are striped over
the OSTs of Lustre or the targets of BeeGFS. It shows how many files and bytes each target holds,
how uneven that is, and what to do about it. It changes nothing and needs no privileges. On file
systems that do not report a layout it says so and succeeds.`,
		Example: "  rankpool layout /lustre/imagenet/train\n" +
			"  rankpool layout imagenet.parquet --json",
		Args: exactly(1, "one folder or manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := exit.Interruptible(cmd.Context())
			defer stop()
			m, survey, err := surveyData(ctx, args[0], opt, quiet)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(newLayoutJSON(m.Root(), survey))
			}
			return printSurvey(cmd.OutOrStdout(), m.Root(), survey, pictureStyle(os.Stdout))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	flags.BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	flags.StringVar(&opt.Root, "root", "",
		"where the data are now, if the manifest names another folder")
	flags.BoolVar(&opt.NoCache, "no-cache", false,
		"neither read nor write a cached manifest of the folder")
	return cmd
}

// surveyData opens a data set and reads the layouts of its files.
func surveyData(
	ctx context.Context, path string, opt index.OpenOptions, quiet bool,
) (*dataset.Manifest, *storage.Survey, error) {
	indexing := progress.NewScan(os.Stderr, quiet)
	opt.Progress = indexing.Update
	m, err := index.Open(ctx, path, opt)
	indexing.End()
	if err != nil {
		return nil, nil, err
	}
	reading := progress.NewLayout(os.Stderr, quiet, int64(m.Len()))
	survey, err := storage.Take(ctx, m.Root(), m, storage.Options{Progress: reading.Update})
	reading.End()
	return m, survey, err
}

// A layoutJSON is the output of "rankpool layout --json".
type layoutJSON struct {
	Data string `json:"data"`
	// "none" if the file system does not report one; then all fields below are empty
	FileSystem  string       `json:"file_system"`
	Files       int64        `json:"files"`
	Bytes       int64        `json:"bytes"`
	Layouts     []groupJSON  `json:"layouts"`
	Pools       []string     `json:"pools"`
	Targets     []targetJSON `json:"targets"`
	Known       int          `json:"targets_of_file_system"` // 0: not known
	MaxOverMean float64      `json:"max_over_mean"`
	Released    int64        `json:"released"`
	Stubs       int64        `json:"stubs"`
	Unreadable  int64        `json:"unreadable"`
	Hints       []string     `json:"hints"`
}

type groupJSON struct {
	FileSystem string `json:"file_system"`
	Kind       string `json:"kind"`
	Targets    int    `json:"targets"` // a file
	Files      int64  `json:"files"`
}

type targetJSON struct {
	Target string `json:"target"`
	Files  int64  `json:"files"`
	Bytes  int64  `json:"bytes"`
}

func newLayoutJSON(root string, s *storage.Survey) layoutJSON {
	out := layoutJSON{
		Data: root, FileSystem: cmp.Or(s.FileSystem, "none"), Files: s.Files, Bytes: s.Bytes,
		Layouts: []groupJSON{},
		Pools:   append([]string{}, s.Pools...), Targets: []targetJSON{}, Known: s.Known,
		MaxOverMean: s.MaxOverMean(),
		Released:    s.Released, Stubs: s.Stubs, Unreadable: s.Unread,
		Hints: append([]string{}, s.Hints()...),
	}
	for _, g := range s.Groups {
		out.Layouts = append(out.Layouts,
			groupJSON{cmp.Or(g.FileSystem, "none"), cmp.Or(string(g.Kind), "none"), g.Stripes, g.Files})
	}
	for _, load := range allLoads(s) {
		out.Targets = append(out.Targets,
			targetJSON{storage.TargetName(s.FileSystem, load.Target), load.Files, load.Bytes})
	}
	return out
}

// allLoads returns the numbered targets, then the MDT and the files on no target, if there are any.
func allLoads(s *storage.Survey) []storage.Load {
	all := append([]storage.Load{}, s.Loads...)
	for _, load := range []storage.Load{s.OnMDT, s.Unplaced} {
		if load.Files > 0 {
			all = append(all, load)
		}
	}
	return all
}

// printSurvey prints a survey: a summary of the data set, one bar per target, and the hints.
func printSurvey(w io.Writer, root string, s *storage.Survey, style barStyle) error {
	if s.FileSystem == "" && s.Unread == 0 {
		_, err := fmt.Fprintf(w, "%s is on a file system that does not report where files "+
			"are stored, so reads cannot be spread over its targets.\n", root)
		return err
	}
	fmt.Fprintf(w, "data set:    %s\nfile system: %s\nfiles:       %s (%s)\nlayouts:     %s\n",
		root, cmp.Or(s.FileSystem, "unknown"), humanize.Comma(s.Files), memory.Text(s.Bytes),
		strings.Join(groupTexts(s), ", "))
	if len(s.Pools) > 0 {
		fmt.Fprintf(w, "pools:       %s\n", strings.Join(s.Pools, ", "))
	}
	fmt.Fprintf(w, "targets:     %s\n\n", targetsText(s))
	if err := printBars(w, s, style); err != nil {
		return err
	}
	for _, hint := range s.Hints() {
		fmt.Fprintf(w, "\nhint: %s\n", hint)
	}
	return nil
}

func groupTexts(s *storage.Survey) []string {
	var texts []string
	for _, g := range s.Groups {
		kind := cmp.Or(string(g.Kind), "none")
		if g.Stripes > 0 {
			kind += fmt.Sprintf(" over %d", g.Stripes)
		}
		texts = append(texts, fmt.Sprintf("%s %s", humanize.Comma(g.Files), kind))
	}
	return texts
}

func targetsText(s *storage.Survey) string {
	text := fmt.Sprint(len(s.Loads))
	if s.Known > 0 {
		text += fmt.Sprintf(" of %d", s.Known)
	}
	text += " in use"
	if len(s.Loads) > 0 {
		text += fmt.Sprintf(", the fullest holds %.2f times their mean", s.MaxOverMean())
	}
	return text
}

const (
	// plainWidth is the width of a picture that is not shown on a terminal.
	plainWidth = 80
	// maxBars is the most targets that get a bar each, as many as fit on a screen. Of more targets,
	// the fullest and the emptiest are shown.
	maxBars = 40
	minBar  = 10 // columns of the longest bar, also on a narrow terminal
)

// A barStyle is how a picture of bars is drawn.
type barStyle struct {
	width int    // of the terminal, in columns
	full  string // one column of a bar
}

// pictureStyle returns block characters as wide as the terminal to, or plain ASCII if to is not a
// terminal or the user wants no decoration.
//
// Source: no-color.org.
func pictureStyle(to *os.File) barStyle {
	width, _, err := term.GetSize(int(to.Fd()))
	if err != nil || width <= 0 {
		return barStyle{plainWidth, "#"}
	}
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return barStyle{width, "#"}
	}
	return barStyle{width, "█"}
}

// printBars prints a row a target, in the order of targets: its name, files, bytes and a bar of its
// bytes. Of more than maxBars targets it prints the fullest and the emptiest, fullest first.
func printBars(w io.Writer, s *storage.Survey, style barStyle) error {
	loads := allLoads(s)
	left := len(loads) - maxBars
	if left > 0 {
		slices.SortStableFunc(loads,
			func(a, b storage.Load) int { return cmp.Compare(b.Bytes, a.Bytes) })
		// an empty row for those that are left out
		loads = slices.Replace(loads, maxBars/2, maxBars/2+left, storage.Load{})
	}
	most := int64(1)
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for i, load := range loads {
		most = max(most, load.Bytes)
		if left > 0 && i == maxBars/2 {
			fmt.Fprintf(table, "(%d more)\t\t\t\n", left)
			continue
		}
		fmt.Fprintf(table, "%s\t%s files\t%s\t\n", storage.TargetName(s.FileSystem, load.Target),
			humanize.Comma(load.Files), memory.Text(load.Bytes))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	lines := strings.Split(text.String(), "\n")
	for i, load := range loads {
		// Leave one column free: a terminal that is filled to its last column begins a new line.
		bar := max(minBar, style.width-utf8.RuneCountInString(lines[i])-1)
		columns := int(float64(load.Bytes) / float64(most) * float64(bar))
		if columns == 0 && load.Bytes > 0 {
			columns = 1
		}
		if _, err := fmt.Fprintln(w,
			strings.TrimRight(lines[i]+strings.Repeat(style.full, columns), " ")); err != nil {
			return err
		}
	}
	return nil
}
