// Command rankpool-lab compares caches: it simulates published systems on recorded losses, trains
// under each of them, and emulates slow storage. Nothing of it is part of rankpool.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/manual"
	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/internal/program"
)

const aboutLab = `rankpool-lab compares caches for deep-learning training: rankpool and published systems,
simulated on recorded losses or run one after the other, also on emulated slow storage.

It is for performance engineers; training needs only rankpool.`

func main() {
	os.Exit(program.Run(newRootCommand(), os.Args[1:], func(err error) {
		fmt.Fprintln(outlet.Stderr, "rankpool-lab:", err)
	}))
}

func newRootCommand() *cobra.Command {
	root := program.New("rankpool-lab", "Compare caches for deep-learning training",
		aboutLab+"\n\n"+exit.Codes)
	root.AddCommand(newSimulateCommand(), newCompareCommand(), newSideBySideCommand(),
		newSlowfsCommand(), newVersionCommand(), manual.NewCommand(newRootCommand, ""))
	return root
}
