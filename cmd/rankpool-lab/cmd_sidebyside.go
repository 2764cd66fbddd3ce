package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool-lab/internal/sidebyside"
)

func newSideBySideCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "side-by-side [NAME=]RUN.jsonl… -o PAGE.html",
		Short: "Compare the run logs of several trainings on a page",
		Long: `Side-by-side compares trainings by the run logs that "rankpool run --log FILE" writes, as
"compare" does with those that it runs. NAME=LOG names a training; logs with the same name are the
same training with several seeds.` + "\n\n" + exit.Codes,
		Example: "  rankpool-lab side-by-side lru=a.jsonl lru=b.jsonl shade=c.jsonl -o both.html",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || output == "" {
				return exit.Usagef("name the run logs and the page, as in: rankpool-lab side-by-side " +
					"lru=a.jsonl shade=b.jsonl -o both.html")
			}
			return sideBySide(args, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the page to write")
	return cmd
}

// sideBySide writes a page that shows the logs side by side.
func sideBySide(args []string, output string) error {
	c := sidebyside.Comparison{Title: "Trainings side by side"}
	for _, arg := range args {
		name, path, named := strings.Cut(arg, "=")
		if _, err := os.Stat(arg); err == nil || !named { // the file's name may have the sign
			name, path = strings.TrimSuffix(filepath.Base(arg), ".jsonl"), arg
		}
		run, err := runlog.ReadFiles(path)
		if err != nil {
			return err
		}
		if len(run.Epochs) == 0 {
			return fmt.Errorf("%s: it contains no training epoch to compare", path)
		}
		i := slices.IndexFunc(c.Sides, func(s sidebyside.Side) bool { return s.Name == name })
		if i < 0 {
			i, c.Sides = len(c.Sides), append(c.Sides, sidebyside.Side{Name: name})
		}
		c.Sides[i].Runs = append(c.Sides[i].Runs, sidebyside.NewSideRun(run, nil))
	}
	var page bytes.Buffer
	if err := c.Write(&page, version.Text); err != nil {
		return err
	}
	if err := renameio.WriteFile(output, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}
