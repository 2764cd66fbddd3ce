package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/program"
	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool/internal/world"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, Go's, and the MPI library that would be loaded, and why",
		Args:  program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			library, err := world.Ask()
			mpi := world.About(library)
			if err != nil {
				mpi = "none, so one rank only: " + err.Error()
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "rankpool %s\ngo: %s %s/%s\nmpi: %s\n",
				version.Text, runtime.Version(), runtime.GOOS, runtime.GOARCH, mpi)
			return err
		},
	}
}
