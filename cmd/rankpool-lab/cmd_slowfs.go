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
somebody unmounts it. It needs FUSE. Settings are lines of TOML, in a file or one by one:

  open_latency, read_latency    of each open of a file, of each read, such as "2ms"
  entry_latency, stat_latency   of each entry of a listing, of each lookup of a name
  bandwidth                     of all targets together, in a second, such as "200MB"
  targets, target_bandwidth     how many storage targets there are, and what each gives
  stripe                        size of a file's pieces on successive targets, such as "1MiB"
  open_rate                     opens in a second
  page_cache, keep_cache        whether the kernel keeps pages of open files, of closed ones too
  entry_timeout, attr_timeout   how long the kernel keeps names and attributes
  rules                         accesses that fail or stall

The file .slowfs/stats in the mounted folder counts what was read.`

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
