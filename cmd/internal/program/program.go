// Package program is what the command lines of rankpool and rankpool-lab have in common: how they
// end, what they say to wrong usage, completion and man pages.
package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/internal/version"
)

// Run executes the command line args of a program and returns the exit code; say writes the error
// that ends it.
func Run(root *cobra.Command, args []string, say func(err error)) int {
	root.SetArgs(args)
	err := root.Execute()
	if exit.Speaks(err) {
		say(err)
	}
	outlet.Stderr.Close(outlet.Patience)
	return exit.Code(err)
}

// New returns the root of a program: without a command it prints its help, and for one that does
// not exist it names the nearest.
func New(name, short, long string) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         short,
		Long:          long,
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
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages ",
		"FlagUsagesWrapped 100 "))
	root.Version = version.Text
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root && cmd.Flags().NArg() > 0 { // the flag is one of the command that was meant
			return unknownCommand(cmd, cmd.Flags().Arg(0))
		}
		return exit.Usagef("%w%s; see \"%s --help\"", err, MeantFlag(cmd.Flags(), err), cmd.CommandPath())
	})
	return root
}

// MeantFlag returns which flag a misspelt one probably means, "" if none is within two letters.
func MeantFlag(flags *pflag.FlagSet, err error) string {
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is || len(unknown.GetSpecifiedName()) < 2 {
		return ""
	}
	best, bestDistance := "", 3
	flags.VisitAll(func(f *pflag.Flag) {
		d := levenshtein.Distance(unknown.GetSpecifiedName(), f.Name, nil)
		if d < bestDistance && !f.Hidden {
			best, bestDistance = f.Name, d
		}
	})
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean --%s?)", best)
}

func unknownCommand(root *cobra.Command, name string) error {
	hint := ""
	near := slices.DeleteFunc(root.SuggestionsFor(name), func(c string) bool {
		return name != "" && c[0] != name[0]
	})
	if len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, ", "))
	}
	return exit.Usagef("%q is not a command%s; see \"%s --help\"", name, hint, root.Name())
}

// Exactly returns a check that a command gets n arguments; the error message calls them what.
func Exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return exit.Usagef("%s takes %s, not %d arguments; see \"%s --help\"", cmd.CommandPath(),
			what, len(args), cmd.CommandPath())
	}
}
