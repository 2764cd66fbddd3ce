package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/staging/tier/keep"
)

func newTierCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "tier",
		Hidden: true,
		Short:  "Remove copies of samples that jobs kept on this node's disk",
		Args:   program.Exactly(0, "one of its subcommands"),
		RunE:   func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTierCleanCommand())
	return cmd
}

func newTierCleanCommand() *cobra.Command {
	var unused time.Duration
	cmd := &cobra.Command{
		Use:   "clean DIR",
		Short: "Remove your copies in DIR, the folder of --tier DIR:SIZE,keep or share",
		Long: `clean removes the copies of samples that your jobs kept in DIR on this node, and nothing
else. A job that is using them continues, and reads storage. On all nodes of an allocation:

  srun --overlap -N $SLURM_NNODES -n $SLURM_NNODES rankpool tier clean DIR`,
		Args: program.Exactly(1, "one folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if unused < 0 {
				return exit.Usagef("--unused-for must be at least 0s, not %v", unused)
			}
			files, bytes, err := keep.Clean(args[0], time.Now().Add(-unused))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "removed %s in %d files\n", memory.Text(bytes),
				files)
			return err
		},
	}
	cmd.Flags().DurationVar(&unused, "unused-for", 0,
		"only those that no job has used for this long (168h: a week)")
	return cmd
}
