package main

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

	"rankpool/cmd/rankpool/internal/version"
)

// aboutEnvironment is a section of rankpool(1).
const aboutEnvironment = `

# ENVIRONMENT

Variables that rankpool reads, and that "run" sets for the training command where it says so:

**RANKPOOL_SESSION**
:   The session folder of the cache on this node, where "top" and the client find the
    ranks. Set by "run".

**RANKPOOL_SOCKET**
:   The door (socket) of this trainer's rank. Set by "run"; the Python client prefers it to
    RANKPOOL_SESSION.

**RANKPOOL_JOB**
:   The name of a training, where several share a cache. Set by "join --job" and "run --trainings".

**RANKPOOL_TRAINING**
:   The number of a training, from 0 on. Set by "run --trainings".

**RANKPOOL_TRAININGS**
:   How many trainings there are. Set by "run --trainings".

**RANKPOOL_PYTHON**
:   "no" leaves PYTHONPATH unchanged; otherwise "run" prepends its own version of the Python client.

**RANKPOOL_MPI_LIBRARY**
:   The MPI library, unless --mpi-library names one: a path, or a name that the loader looks up.
    Set by "run" for its ranks.

**RANKPOOL_BATCH_TIMEOUT**
:   Seconds that the Python client waits for a batch from the cache before it reads storage
    (default 30). Set by "run --batch-timeout".

**RANKPOOL_PLAN_TIMEOUT**
:   Seconds that the Python client waits for the plan of an epoch while the cache is down
    (default 600). Set by "run --plan-timeout".

**MASTER_ADDR**, **MASTER_PORT**
:   Kept if set; otherwise set by "run", as are **RANK**, **WORLD_SIZE**, **LOCAL_RANK**,
    **LOCAL_WORLD_SIZE** and **OMP_NUM_THREADS**.

**SLURM_***
:   The job, its nodes, tasks, memory, GPUs and end, as Slurm describes them.

**XDG_CACHE_HOME**
:   Where manifests of folders scanned earlier are cached (default ~/.cache).
`

// newDocsCommand is for packagers of rankpool: "make install" calls it.
func newDocsCommand() *cobra.Command {
	docs := &cobra.Command{Use: "docs", Short: "Write the manual", Hidden: true}
	docs.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write the man pages of all commands into a folder",
		Args:  exactly(1, "one folder"),
		RunE:  func(_ *cobra.Command, args []string) error { return writeManPages(args[0]) },
	})
	return docs
}

// writeManPages writes rankpool.1 and one page for each command that help lists. The pages depend
// only on the commands and the version; they carry no date.
func writeManPages(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	root := newRootCommand() // a new one, because its texts are changed
	pages := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			pages = append(pages, c)
		}
	}
	for _, c := range pages {
		c.Long = markdown(c.Long)
	}
	root.Long += aboutCommands(pages[1:]) + aboutEnvironment
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

// aboutCommands is a section of rankpool(1) that lists the commands.
func aboutCommands(commands []*cobra.Command) string {
	var list strings.Builder
	list.WriteString("\n\n# COMMANDS\n")
	for _, c := range commands {
		fmt.Fprintf(&list, "\n**rankpool-%s**(1)\n:   %s.\n", c.Name(), escapeMarkdown(c.Short))
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
