// Command slowfs shows a folder as slow storage would serve it, until it gets SIGINT or SIGTERM.
// See package slowfs.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"rankpool/benchmarks/slowfs"
)

func main() {
	var settings []string
	config := flag.String("config", "", "a TOML file of settings")
	flag.Func("set",
		`a setting as in the file, such as 'bandwidth = "200MB"'; may be given several times`,
		func(line string) error {
			settings = append(settings, line)
			return nil
		})
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: slowfs [-config FILE] [-set KEY=VALUE]… "+
			"SOURCE MOUNTPOINT")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), flag.Arg(1), *config, settings); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(source, dir, configPath string, settings []string) error {
	config, err := slowfs.Load(configPath, settings...)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	s, err := slowfs.Mount(source, dir, config)
	if err != nil {
		return err
	}
	fmt.Println("slowfs: mounted at", s.Dir())
	gone := make(chan struct{})
	go func() {
		s.Wait()
		close(gone)
	}()
	select {
	case <-stop:
		return s.Close()
	case <-gone: // Somebody unmounted it.
		return nil
	}
}
