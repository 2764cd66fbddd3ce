//go:build manual

package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/manual"
)

func init() {
	forPackagers = func() []*cobra.Command {
		return []*cobra.Command{manual.NewCommand(newRootCommand, aboutEnvironment)}
	}
}
