package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/doctor"
	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/scheduler"
	"rankpool/scheduler/systems"
)

const aboutCompletion = `completion prints a shell script that completes rankpool's commands, flags
and flag values when you press Tab.

  bash   rankpool completion bash > ~/.local/share/bash-completion/completions/rankpool
         (needs the package bash-completion; a new shell reads it)
  zsh    rankpool completion zsh > "${fpath[1]}/_rankpool"
         (needs "autoload -U compinit; compinit" in ~/.zshrc)
  fish   rankpool completion fish > ~/.config/fish/completions/rankpool.fish

"make install" installs all three scripts.`

// newCompletionCommand replaces cobra's own command, whose help fills a screen for each shell.
func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a script that completes rankpool's commands and flags",
		Long:      aboutCompletion,
		Example:   "  source <(rankpool completion bash)   # for this shell only",
		Args:      exactly(1, "one shell"),
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

// completeFlags registers the values of flags for all commands that have a flag of that name.
func completeFlags(root *cobra.Command) {
	var ranked []string // systems that ranks can run
	for _, s := range systems.All() {
		if s.Simulated == "" {
			ranked = append(ranked, s.Name)
		}
	}
	values := map[string][]string{
		"system": ranked, "policy": systems.PolicyNames(), "scorer": scheduler.ScorerNames(),
		"sampler": scheduler.SamplerNames(),
		"assign":  rank.Assignments, "memory": {"auto", "20%", "64GiB"},
		"links": linkPolicies, "fsync": syncPolicies, "mode": stageModes,
		"log-format": rank.LogFormats,
	}
	for _, cmd := range root.Commands() {
		for name, list := range values {
			if cmd.Flags().Lookup(name) != nil {
				// An error only means that the flag does not exist, or has its values already.
				_ = cmd.RegisterFlagCompletionFunc(name,
					cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
			}
		}
		switch cmd.Name() { // these flags mean something else in other commands
		case "doctor":
			_ = cmd.RegisterFlagCompletionFunc("only", completeChecks) // in doctor only
		case "index":
			_ = cmd.RegisterFlagCompletionFunc("format",
				cobra.FixedCompletions([]string{"auto", "files"},
					cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// completeChecks completes the last of a list of doctor's checks, with those that are not in it
// yet.
func completeChecks(
	_ *cobra.Command, _ []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var lists []cobra.Completion
	for _, c := range doctor.Checks() {
		if !slices.Contains(strings.Split(before, ","), c.Name) {
			lists = append(lists, cobra.CompletionWithDesc(before+c.Name, c.About))
		}
	}
	return lists, cobra.ShellCompDirectiveNoFileComp
}
