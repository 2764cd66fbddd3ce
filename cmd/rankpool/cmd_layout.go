package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/exit"
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
		root, cmp.Or(s.FileSystem, "unknown"),
		humanize.Comma(s.Files), humanize.IBytes(uint64(s.Bytes)),
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
