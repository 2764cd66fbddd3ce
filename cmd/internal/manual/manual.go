// Package manual writes man pages.
package manual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"rankpool/cmd/internal/program"
	"rankpool/cmd/internal/version"
)

// NewCommand is for packagers: "make install" calls it. newRoot returns the program's root, and
// about is added to the program's own page.
func NewCommand(newRoot func() *cobra.Command, about string) *cobra.Command {
	docs := &cobra.Command{Use: "docs", Short: "Write the manual", Hidden: true}
	docs.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write the man pages of all commands into a folder",
		Args:  program.Exactly(1, "one folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			return Write(args[0], newRoot(), about)
		},
	})
	return docs
}

// Write writes a page for a program, with the text about in addition, and one for each
// command that help lists. It changes the texts of root. The pages depend only on the commands and
// the version; they carry no date.
func Write(dir string, root *cobra.Command, about string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	pages := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			pages = append(pages, c)
		}
	}
	for _, c := range pages {
		c.Long = markdown(c.Long)
	}
	root.Long += aboutCommands(pages[1:]) + about
	for _, c := range pages {
		page, err := manPage(c)
		if err != nil {
			return err
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		if err := os.WriteFile(filepath.Join(dir, name), page, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// aboutCommands is a section of a program's page that lists the commands.
func aboutCommands(commands []*cobra.Command) string {
	var list strings.Builder
	list.WriteString("\n\n# COMMANDS\n")
	for _, c := range commands {
		fmt.Fprintf(&list, "\n**%s-%s**(1)\n:   %s.\n", c.Root().Name(), c.Name(),
			escapeMarkdown(c.Short))
	}
	return list.String()
}

// manPage returns a command's page in roff.
func manPage(c *cobra.Command) ([]byte, error) {
	c.DisableAutoGenTag = true // it has the date
	c.InitDefaultHelpFlag()
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = escapeMarkdown(f.Usage) })
	header := &doc.GenManHeader{
		Section: "1", Source: "rankpool " + version.Text,
		Manual: "rankpool", Date: &time.Time{},
	}
	var page bytes.Buffer
	if err := doc.GenMan(c, header, &page); err != nil {
		return nil, fmt.Errorf("man page of %s: %w", c.CommandPath(), err)
	}
	return bytes.Replace(page.Bytes(), []byte(`"Jan 0001"`), []byte(`""`), 1), nil
}

// markdown turns a help text into markdown: indented lines stay verbatim, and the table of exit
// codes gets a heading.
func markdown(help string) string {
	var out strings.Builder
	verbatim := false
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		if title, found := strings.CutPrefix(line, "Exit codes"); found &&
			strings.HasSuffix(title, ":") {
			line = "# EXIT STATUS"
			if title != ":" {
				line += "\n\nExit codes" + escapeMarkdown(title)
			}
		} else if indented := strings.HasPrefix(line, "  "); indented || verbatim && line == "" {
			if !verbatim {
				out.WriteString("\n")
			}
			verbatim = true
			line = "    " + strings.TrimPrefix(line, "  ")
		} else {
			if verbatim {
				out.WriteString("\n")
			}
			verbatim = false
			line = escapeMarkdown(line)
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

var meansMore = regexp.MustCompile("[\\\\`*_<>\\[\\]{}~&|#]")

// escapeMarkdown escapes characters that have a meaning in markdown.
func escapeMarkdown(text string) string { return meansMore.ReplaceAllString(text, `\$0`) }
