package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"rankpool/benchmarks/slowfs"
	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
)

const aboutSlowfs = `Slowfs shows a folder as slow storage would serve it, until it gets SIGINT or SIGTERM, or
somebody unmounts it. It needs FUSE.

The settings are lines of TOML, in a file or one by one: bandwidth, latencies of calls, targets,
and rules for some of the files.`

func newSlowfsCommand() *cobra.Command {
	var config string
	var settings []string
	cmd := &cobra.Command{
		Use:   "slowfs [flags] SOURCE MOUNTPOINT",
		Short: "Show a folder as slow storage would serve it",
		Long:  aboutSlowfs + "\n\n" + exit.Codes,
		Example: "  rankpool-lab slowfs --config lustre.toml images/ slow/\n" +
			"  rankpool-lab slowfs --set 'bandwidth = \"200MB\"' images/ slow/",
		Args: program.Exactly(2, "a folder and where to mount it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := slowfs.Load(config, settings...)
			if err != nil {
				return exit.Usagef("%w", err)
			}
			return mountSlowfs(cmd.Context(), args[0], args[1], options, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "a TOML file of settings")
	cmd.Flags().StringArrayVar(&settings, "set", nil,
		"a setting as in the file, such as 'bandwidth = \"200MB\"'; may be given several times")
	return cmd
}

// mountSlowfs shows source in dir until a signal comes or somebody unmounts it.
func mountSlowfs(
	parent context.Context, source, dir string, options slowfs.Config, out io.Writer,
) error {
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	server, err := slowfs.Mount(source, dir, options)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "mounted at", server.Dir())
	unmounted := make(chan struct{})
	go func() {
		server.Wait()
		close(unmounted)
	}()
	select {
	case <-ctx.Done():
		return server.Close()
	case <-unmounted:
		return nil
	}
}
