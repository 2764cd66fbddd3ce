package program

import (
	"strings"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
)

const aboutCompletion = `completion prints a shell script that completes NAME's commands, flags
and flag values when you press Tab.

  bash   NAME completion bash > ~/.local/share/bash-completion/completions/NAME
         (needs the package bash-completion; a new shell reads it)
  zsh    NAME completion zsh > "${fpath[1]}/_NAME"
         (needs "autoload -U compinit; compinit" in ~/.zshrc)
  fish   NAME completion fish > ~/.config/fish/completions/NAME.fish

"make install" installs all three scripts.`

// NewCompletionCommand replaces cobra's own command, whose help fills a screen for each shell.
func NewCompletionCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a script that completes " + name + "'s commands and flags",
		Long:      strings.ReplaceAll(aboutCompletion, "NAME", name),
		Example:   "  source <(" + name + " completion bash)   # for this shell only",
		Args:      Exactly(1, "one shell"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return exit.Usagef("no completion for %q: choose bash, zsh or fish", args[0])
		},
	}
}

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
