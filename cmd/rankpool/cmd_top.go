package main

import (
	"time"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/top"
)

const aboutTop = `top shows what the nodes of a running cache are doing: where samples come from,
the throughput and latency of storage and of the other ranks, how long training waits, memory and
GPUs.

It connects to rank 0's door, on the first node of the run; the rank of another node knows only its
own node. The cache is the one named by $RANKPOOL_SESSION, else that of the Slurm job on this node,
else your only one on this machine. From another machine, start top as a step on the job's first
node:

  srun --overlap --jobid=4242 --nodes=1 --ntasks=1 --pty rankpool top

Keys: q quits, s sorts the nodes that wait most to the top, arrow and page keys scroll. If stdout is
not a terminal, top prints a table every interval, with --json a line of JSON. NO_COLOR=1 turns
colours off, CLICOLOR_FORCE=1 keeps them in a file.`

const leastTopInterval = 100 * time.Millisecond

func newTopCommand() *cobra.Command {
	var o top.Options
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Watch the nodes of a running cache",
		Long:  aboutTop,
		Example: "  rankpool top\n" +
			"  rankpool top --once --json | jq .total.rates.samples_per_second",
		Args: program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Interval < leastTopInterval {
				return exit.Usagef("--interval: %v is too short: the least is %v", o.Interval,
					leastTopInterval)
			}
			return o.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Session, "session", "", "the session folder of the cache on this machine")
	flags.BoolVar(&o.Once, "once", false, "print one table, of an interval, and end")
	flags.BoolVar(&o.JSON, "json", false, "print JSON, an object a reading")
	flags.DurationVar(&o.Interval, "interval", time.Second,
		"pause between readings; ranks report once a second")
	return cmd
}
