package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/top"
)

const aboutTop = `top shows what the nodes of a running cache are doing: where samples come from,
the throughput and latency of storage and of the other ranks, how long training waits, memory and
GPUs.

It connects to rank 0's door, on the first node of the run; the rank of another node knows only its
own node. The cache is the one named by $RANKPOOL_SESSION, else that of the Slurm job on this node,
else your only one on this machine. From another machine, name the job: "rankpool top --job 4242"
starts top as a step on the job's first node,

  srun --overlap --jobid=4242 --nodes=1 --ntasks=1 --nodelist=FIRST --pty rankpool top

Keys: q quits, s sorts the nodes that wait most to the top, arrow and page keys scroll. If stdout is
not a terminal, top prints a table every interval, with --json a line of JSON.`

const leastTopInterval = 100 * time.Millisecond

var colorChoices = []string{"auto", "always", "never"}

func newTopCommand() *cobra.Command {
	var o top.Options
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Watch the nodes of a running cache",
		Long:  aboutTop,
		Example: "  rankpool top\n" +
			"  rankpool top --job 4242\n" +
			"  rankpool top --once --json | jq .total.rates.samples_per_second",
		Args: program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTop(&o); err != nil {
				return err
			}
			o.Args = topArgs(cmd.Flags())
			return o.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Session, "session", "", "the session folder of the cache on this machine")
	flags.StringVar(&o.Job, "job", "",
		"show this Slurm job, through a step on its first node if that is another machine")
	flags.BoolVar(&o.Once, "once", false, "print one table, of an interval, and end")
	flags.BoolVar(&o.JSON, "json", false, "print JSON, an object a reading")
	flags.DurationVar(&o.Interval, "interval", time.Second,
		"pause between readings; ranks report once a second")
	flags.StringVar(&o.Color, "color", colorChoices[0],
		"colours and bars: auto (on a terminal; NO_COLOR turns colours off), always or never")
	return cmd
}

func checkTop(o *top.Options) error {
	if o.Interval < leastTopInterval {
		return exit.Usagef("--interval: %v is too short: the least is %v", o.Interval,
			leastTopInterval)
	}
	if o.Session != "" && o.Job != "" {
		return exit.Usagef("--session and --job name the same thing: give one of them")
	}
	return rank.OneOf("--color", o.Color, colorChoices)
}

// topArgs returns the flags that were given, without the job, for top on another node.
func topArgs(flags *pflag.FlagSet) []string {
	var args []string
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "job" {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}
