// Command benchmarks measures rankpool side by side with its alternatives, in one run on one
// machine, and prints a table of ratios and their bars. "make bench" builds and runs it; README.md
// explains the rows.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"rankpool/benchmarks/slowfs"
)

// bench is one run of the benchmarks.
type bench struct {
	quick  bool   // small sizes, to check that everything works
	tool   string // path of rankpool
	python string
	dir    string // in memory, for data sets and results
	trains string // the workload of peers that is measured, "" for all
	nopfs  string // a folder with NoPFS, "" if there is none

	group   atomic.Pointer[memoryGroup]   // what a peer runs in, nil if there is none
	mounted atomic.Pointer[slowfs.Server] // the emulated storage, nil if there is none
}

// section measures one or more rows.
type section struct {
	name    string
	about   string // how it is measured, for people
	named   bool   // it is measured only if it is named
	measure func(*bench) (grid, error)
}

// ratios makes a section's table of the rows that a function measures.
func ratios(measure func(*bench) ([]row, error)) func(*bench) (grid, error) {
	return func(b *bench) (grid, error) {
		rows, err := measure(b)
		return table(rows), err
	}
}

var sections = []section{
	servedSection, remoteSection, fragmentationSection, hitsSection, planSection, memorySection,
	boundarySection, ordersSection, saveSection, idleSection,
	stagingSection, stageSection, pfsSection, jobsSection, benefitSection, failuresSection,
	peersSection,
	acceleratorsSection, nopfsSection,
}

// children are the benchmarks that run in their own processes, by name.
var children = map[string]func(args []string) (any, error){
	"plan":   planChild,
	"read":   readChild,
	"remote": remoteChild,
	"save":   saveChild,
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		runChild(os.Args[2], os.Args[3:])
		return
	}
	var b bench
	only := flag.String("only", "", "sections to run, separated by commas (default: all but "+
		"staging, stage, pfs, jobs, benefit, failures, peers, accelerators and nopfs)")
	flag.BoolVar(&b.quick, "quick", false, "small sizes: shows that all of it works, and tells "+
		"nothing about speed")
	flag.StringVar(&b.tool, "rankpool", "bin/rankpool", "the tool to measure")
	flag.StringVar(&b.dir, "dir", "/dev/shm", "a folder in memory, for data sets and results (1 "+
		"GiB, 5 GiB for staging and pfs; 100 MiB, 300 MiB for a quick run)")
	flag.StringVar(&b.python, "python", "/usr/bin/python3", "a Python with redis and hiredis")
	flag.StringVar(&b.trains, "workload", "", "the workload of peers to measure (default: all)")
	flag.StringVar(&b.nopfs, "nopfs", "", "a folder with NoPFS's Python package hdmlp and "+
		"libhdmlp.so, for the section nopfs")
	out := flag.String("out", "", "a file to which the tables are written too")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: benchmarks [flags], in the root of "+
			"the repository")
		flag.PrintDefaults()
	}
	flag.Parse()
	chosen, err := choose(*only)
	if err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "benchmarks:", err, strings.Join(flag.Args(), " "))
		os.Exit(2)
	}
	began := look()
	tables, ok := b.run(chosen)
	text := b.report(chosen, began.until(look())+b.versions(chosen), tables)
	fmt.Print(text)
	if *out != "" {
		if err := os.WriteFile(*out, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "benchmarks:", err)
			ok = false
		}
	}
	if !ok {
		os.Exit(1)
	}
}

// choose returns the named sections, or for "" all that need not be named.
func choose(names string) ([]section, error) {
	if names == "" {
		return slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return s.named }), nil
	}
	var chosen []section
	for name := range strings.SplitSeq(names, ",") {
		n := len(chosen)
		for _, s := range sections {
			if s.name == name {
				chosen = append(chosen, s)
			}
		}
		if n == len(chosen) {
			return nil, fmt.Errorf("unknown section %q", name)
		}
	}
	return chosen, nil
}

// run measures the sections one after the other; ok is false if one could not be measured. Missing
// a bar is not a failure: the machine may be busy.
func (b *bench) run(chosen []section) (tables []grid, ok bool) {
	dir, err := os.MkdirTemp(b.dir, "rankpool-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		return nil, false
	}
	defer remove(dir)
	b.dir = dir
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted // Child processes get the terminal's signal too.
		b.endGroup()
		b.unmount()
		remove(dir)
		os.Exit(1)
	}()
	ok = true
	for _, s := range chosen {
		fmt.Fprintf(os.Stderr, "%-14s ", s.name)
		began := time.Now()
		measured, err := s.measure(b)
		fmt.Fprintf(os.Stderr, "%5.1f s\n", time.Since(began).Seconds())
		if err != nil {
			ok = false
			fmt.Fprintf(os.Stderr, "benchmarks: %s: %v\n", s.name, err)
		}
		tables = append(tables, measured)
	}
	return joined(tables), ok
}

// report returns the tables, and how they were measured, as Markdown.
func (b *bench) report(chosen []section, machine string, tables []grid) string {
	var text strings.Builder
	if b.quick {
		text.WriteString("A quick run: the numbers below are of sizes that say nothing.\n\n")
	}
	fmt.Fprintln(&text, machine)
	for _, g := range tables {
		fmt.Fprintf(&text, "\n%s", g)
	}
	for _, s := range chosen {
		fmt.Fprintf(&text, "\n%s: %s\n", s.name, s.about)
	}
	return text.String()
}

// runChild runs a child and prints its result as JSON; ranks other than the one with the result
// print nothing.
func runChild(name string, args []string) {
	child, ok := children[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "benchmarks: unknown child", name)
		os.Exit(2)
	}
	result, err := child(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
	if result == nil {
		return
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}
