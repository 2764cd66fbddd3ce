package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/outlet"
	"rankpool/cmd/rankpool/internal/world"
)

const aboutRankpool = `rankpool feeds deep-learning training on supercomputers.

One MPI rank a node pools the nodes' memory into one cache, reads the samples that matter from
storage before training asks for them, and hands them to the node's training processes through
shared memory. Training sees exactly the samples that its sampler drew.`

// run executes the command line args and returns the exit code.
func run(args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	err := root.Execute()
	exit.Print(outlet.Stderr, err)
	outlet.Stderr.Close(outlet.Patience)
	return exit.Code(err)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "rankpool",
		Short:         "Feed deep-learning training from the memory of all nodes",
		Long:          aboutRankpool + "\n\n" + exit.Table,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usagef("%w; see \"%s --help\"", err, cmd.CommandPath())
	})
	root.AddCommand(newRunCommand(), newIndexCommand(), newServeCommand(), newStageCommand(),
		newPackCommand(), newReplayCommand(), newReportCommand(), newCompareCommand(),
		newTopCommand(), newSimulateCommand(), newPlanCommand(),
		newDoctorCommand(), newVersionCommand(), newSbatchCommand(), newCompletionCommand(),
		newDocsCommand(), newJoinCommand(), newEndCommand(), newTierCommand(),
		world.NewLibraryCommand(), world.NewStartCommand())
	completeFlags(root)
	return root
}

func unknownCommand(root *cobra.Command, name string) error {
	hint := ""
	if near := root.SuggestionsFor(name); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, ", "))
	}
	return exit.Usagef("%q is not a command%s; see \"rankpool --help\"", name, hint)
}

// exactly returns a check that a command gets n arguments; the error message calls them what.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return exit.Usagef("%s takes %s, not %d arguments; see \"%s --help\"", cmd.CommandPath(),
			what, len(args), cmd.CommandPath())
	}
}

// openInput opens a file, or stdin for "-".
func openInput(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}
