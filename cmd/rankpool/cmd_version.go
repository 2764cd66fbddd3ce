package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"rankpool/mpicache"
)

// version is what "git describe" said when the binary was built (set by the linker, see Makefile).
var version = "unknown"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, Go's and the MPI library's",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			mpi := mpicache.MPILibrary()
			if mpi == "" {
				mpi = "none (one rank only)"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "rankpool %s\ngo: %s %s/%s\nmpi: %s\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH, mpi)
			return err
		},
	}
}
