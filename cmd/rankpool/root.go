package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/world"
)

const aboutRankpool = `rankpool feeds deep-learning training on supercomputers.

One MPI rank a node pools the nodes' memory into one cache, reads the samples that matter from
storage before training asks for them, and hands them to the node's training processes through
shared memory. Training sees exactly the samples that its sampler drew.`

func newRootCommand() *cobra.Command {
	root := program.New("rankpool", "Feed deep-learning training from the memory of all nodes",
		aboutRankpool+"\n\n"+exit.Table)
	root.AddCommand(newRunCommand(), newIndexCommand(), newServeCommand(), newStageCommand(),
		newPackCommand(), newReportCommand(), newTopCommand(),
		newDoctorCommand(), newVersionCommand(), newSbatchCommand(),
		newJoinCommand(), newEndCommand(), newTierCommand(),
		world.NewLibraryCommand(), world.NewStartCommand())
	root.AddCommand(forPackagers()...)
	return root
}

// forPackagers returns the command that writes man pages, where the build tag manual is set:
// without it, and what it is made of, the program is smaller.
var forPackagers = func() []*cobra.Command { return nil }

// openInput opens a file, or stdin for "-".
func openInput(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}
