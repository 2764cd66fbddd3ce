package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/mpicache/record"
)

func newReplayCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Replay a recorded run, and compare the decisions",
		Long: `Replay feeds the events that "rankpool run --record FILE" recorded to the scheduler
again, and compares its decisions with the recorded ones. FILE belongs to rank 0; the recordings of
the other ranks, FILE.1, FILE.2 and so on, are replayed too if they are in the same folder. A
recording truncated by a kill is replayed up to its end.

At the first event that leads to different commands, replay prints both and exits with code 1.`,
		Example: "  rankpool run --ranks 2 --data images/ --record build/run.rec -- python " +
			"train.py\n  rankpool replay build/run.rec",
		Args: program.Exactly(1, "one recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := replayRanks(args[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			} else {
				err = r.print(cmd.OutOrStdout())
			}
			if err == nil && !r.Identical {
				return &exit.StatusError{Code: exit.Failure}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// A replayReport is the output of "rankpool replay".
type replayReport struct {
	Identical bool `json:"identical"`
	Ranks     int  `json:"ranks"` // of the run
	// missing recordings of other ranks
	Missing    []string           `json:"missing,omitempty"`
	Rows       []record.Row       `json:"rows"`
	Difference *record.Difference `json:"difference,omitempty"`
}

// replayRanks replays a rank's recording and, if it is rank 0's, those of the other ranks, up to
// the first difference. Warnings go to w.
func replayRanks(path string, w io.Writer) (*replayReport, error) {
	first, err := replayFile(path)
	if err != nil {
		return nil, err
	}
	begin := first.Lives[0].Begin
	r := &replayReport{Ranks: begin.Ranks}
	r.add(path, first, w)
	if begin.Version != version.Text {
		fmt.Fprintf(w, "rankpool: %s was recorded by rankpool %s; this is %s, which may decide "+
			"otherwise on purpose\n", path, begin.Version, version.Text)
	}
	for rank := 1; begin.Rank == 0 && rank < begin.Ranks && r.Difference == nil; rank++ {
		other := record.Path(path, rank)
		result, err := replayFile(other)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.miss(other, "not found", w)
		case err != nil:
			return nil, err
		case result.Lives[0].Session != begin.Session:
			r.miss(other, "it belongs to another run", w)
		default:
			r.add(other, result, w)
		}
	}
	r.Identical = r.Difference == nil
	return r, nil
}

func replayFile(path string) (*record.Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the recording %s cannot be read: %w", path, rank.Pathless(err))
	}
	defer f.Close()
	result, err := record.Replay(f)
	if err != nil {
		return nil, fmt.Errorf("the recording %s cannot be replayed: %w", path, err)
	}
	return result, nil
}

func (r *replayReport) miss(path, why string, w io.Writer) {
	r.Missing = append(r.Missing, path)
	fmt.Fprintf(w, "rankpool: %s is ignored: %s\n", path, why)
}

// add adds the result of a rank, and prints where its recording has gaps.
func (r *replayReport) add(path string, result *record.Result, w io.Writer) {
	r.Rows = append(r.Rows, result.Rows...)
	r.Difference = result.Difference
	if r.Difference != nil {
		return // what comes after it was not read
	}
	for i, life := range result.Lives {
		switch {
		case !life.Ended:
			fmt.Fprintf(w, "rankpool: %s: start %d is incomplete: the rank was killed, and what it "+
				"decided in its last second is not recorded\n", path, i+1)
		case life.Why != "":
			fmt.Fprintf(w, "rankpool: %s: start %d was not recorded to its end: %s\n", path, i+1,
				life.Why)
		}
	}
}

func (r *replayReport) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "rank\tstart\tdata\tepochs\tevents\tcommands\tcoordinator\t")
	events, commands, decisions := int64(0), int64(0), int64(0)
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%d\t%d\t%s\t%d\t%s\t%s\t%s\t\n", row.Rank, row.Start, row.Data, row.Epochs,
			humanize.Comma(row.Events), humanize.Comma(row.Commands),
			humanize.Comma(row.CoordinatorEvents))
		events += row.Events
		commands += row.Commands
		decisions += row.CoordinatorEvents
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if d := r.Difference; d != nil {
		return printDifference(w, d)
	}
	if events == 0 {
		_, err := fmt.Fprintln(w, "the recording is empty: there is nothing to compare")
		return err
	}
	_, err := fmt.Fprintf(w, "identical: %s events gave the %s commands that were recorded, and "+
		"coordinators decided the same after %s\n", humanize.Comma(events), humanize.Comma(commands),
		humanize.Comma(decisions))
	return err
}

func printDifference(w io.Writer, d *record.Difference) error {
	_, err := fmt.Fprintf(w, "different: rank %d, start %d, data set %s, event %s\n  %s\n", d.Rank,
		d.Start, d.Data, humanize.Comma(d.Number), d.Event)
	for _, side := range []struct {
		name  string
		lines []string
	}{{"recorded", d.Recorded}, {"replayed", d.Replayed}} {
		fmt.Fprintf(w, "%s:\n", side.name)
		for _, line := range side.lines {
			_, err = fmt.Fprintf(w, "  %s\n", line)
		}
	}
	return err
}
