package main

import (
	"os"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/rank"
)

func newServeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "serve",
		Short:  "Run one rank of the cache (started by run)",
		Hidden: true,
		Args:   program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := rank.Given(os.Getenv)
			if err != nil {
				return err
			}
			return o.Serve(cmd.Context())
		},
	}
}
