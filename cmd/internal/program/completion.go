package program

import "github.com/spf13/cobra"

// CompleteValues registers the values of flags, by the flags' names, for all commands that have
// such a flag.
func CompleteValues(root *cobra.Command, values map[string][]string) {
	for _, cmd := range root.Commands() {
		for name, list := range values {
			if cmd.Flags().Lookup(name) != nil {
				// An error only means that the flag does not exist, or has its values already.
				_ = cmd.RegisterFlagCompletionFunc(name,
					cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
			}
		}
	}
}
