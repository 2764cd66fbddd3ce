package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/doctor"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/scheduler/systems"
)

// completeFlags registers the values of flags for all commands that have a flag of that name.
func completeFlags(root *cobra.Command) {
	var ranked []string // systems that ranks can run
	for _, s := range systems.All() {
		if s.Simulated == "" {
			ranked = append(ranked, s.Name)
		}
	}
	values := map[string][]string{
		"system": ranked, "memory": {"auto", "20%", "64GiB"}, "mode": stageModes,
		"log-format": messages.Formats,
	}
	program.CompleteValues(root, values)
	for _, cmd := range root.Commands() {
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
