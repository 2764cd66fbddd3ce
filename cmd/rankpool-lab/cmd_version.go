package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/program"
	"rankpool/cmd/internal/version"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and Go's",
		Args:  program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "rankpool-lab %s\ngo: %s %s/%s\n", version.Text,
				runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
