package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/launch"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
)

// pieceFlags are the flags of index for samples that are made of pieces of files.
type pieceFlags struct {
	table, python string
	flags         *pflag.FlagSet
}

// listerFlags are the flags that python3 -m rankpool.pieces gets.
var listerFlags = []struct{ name, help string }{
	{"dataset", "variables that make up a sample, of HDF5, NetCDF, Zarr or .npz: NAME,…"},
	{"rows", "rows (along the first axis) of a sample"},
	{"stride", "rows from one sample to the next"},
	{"header", "bytes before a raw array"},
	{"shape", "shape of a raw array: N,H,W"},
	{"dtype", "type of a raw array: float32, int16, …"},
}

func (f *pieceFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	for _, flag := range listerFlags {
		flags.String(flag.name, "", flag.help)
	}
	flags.StringVar(&f.table, "pieces", "", "read a list of pieces from this file; -: standard input")
	flags.StringVar(&f.python, "python", "", "the Python that lists pieces; it needs NumPy (default: "+
		"python3, or else /usr/bin/python3)")
}

// args checks the arguments: one folder or file, or --pieces.
func (f *pieceFlags) args(cmd *cobra.Command, args []string) error {
	if f.table != "" && len(args) == 0 {
		return nil
	}
	return program.Exactly(1, "one folder or file, or --pieces")(cmd, args)
}

// wanted reports whether the samples of a folder or file are made of pieces.
func (f *pieceFlags) wanted(args []string, wholeFiles bool) bool {
	return f.table != "" || len(f.given()) > 0 || index.MadeOfPieces(args[0], wholeFiles)
}

// given returns the flags for the lister that are given, with their values.
func (f *pieceFlags) given() (args []string) {
	for _, flag := range listerFlags {
		if f.flags.Changed(flag.name) {
			args = append(args, "--"+flag.name, f.flags.Lookup(flag.name).Value.String())
		}
	}
	return args
}

// writePieces writes the manifest of samples that are made of pieces.
func (x *indexing) writePieces(ctx context.Context, cmd *cobra.Command) (err error) {
	for _, name := range []string{"verify", "only", "format"} {
		if cmd.Flags().Changed(name) {
			return exit.Usagef("--%s does not go with samples made of pieces", name)
		}
	}
	if x.before, err = readOutput(x.output); err != nil {
		return err
	}
	m, err := x.pieces.read(ctx, cmd, x.dir)
	listed := time.Since(x.begin)
	if err == nil && x.checksum {
		m, err = x.sums(ctx, m, nil)
	}
	if err != nil {
		return err
	}
	return x.finish(m, time.Since(x.begin), listed)
}

// read reads the list of pieces: a file, standard input, or what the lister prints.
func (f *pieceFlags) read(
	ctx context.Context, cmd *cobra.Command, path string,
) (*dataset.Manifest, error) {
	switch f.table {
	case "-":
		return index.ReadPieces(cmd.InOrStdin())
	case "":
		if quiet, _ := cmd.Flags().GetBool("quiet"); !quiet {
			return f.list(ctx, cmd.ErrOrStderr(), path)
		}
		var said bytes.Buffer
		m, err := f.list(ctx, &said, path)
		if err != nil {
			_, _ = said.WriteTo(cmd.ErrOrStderr()) // nothing can be done if that fails
		}
		return m, err
	}
	file, err := os.Open(f.table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return index.ReadPieces(file)
}

// list runs the lister and reads what it prints.
func (f *pieceFlags) list(
	ctx context.Context, errs io.Writer, path string,
) (*dataset.Manifest, error) {
	folder, err := os.MkdirTemp("", "rankpool-index-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }() // it has only a copy of the client
	client, err := launch.ExtractClient(folder, os.Getenv)
	if err != nil {
		return nil, err
	}
	args := append([]string{"-m", "rankpool.pieces", path}, f.given()...)
	python := f.interpreter(ctx)
	lister := exec.CommandContext(ctx, python, args...)
	lister.Stderr = errs
	if client != "" {
		lister.Env = append(os.Environ(), "PYTHONPATH="+launch.PythonPath(client, os.Getenv))
	}
	out, err := lister.StdoutPipe()
	if err == nil {
		err = lister.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("%s lists the pieces of such files, and does not start: %w; name a "+
			"Python that has rankpool with --python", python, err)
	}
	m, err := index.ReadPieces(out)
	_, _ = io.Copy(io.Discard, out) // so that the lister ends
	if ended := lister.Wait(); ended != nil {
		var status *exec.ExitError
		if errors.As(ended, &status) && status.Exited() { // the lister has said why
			return nil, &exit.StatusError{Code: status.ExitCode()}
		}
		return nil, fmt.Errorf("the pieces were not listed: %w", ended)
	}
	return m, err
}

// interpreter returns the Python that lists pieces: that of --python, or the first with NumPy. If
// none has it, the lister says so.
func (f *pieceFlags) interpreter(ctx context.Context) string {
	const hasNumPy = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('numpy'))"
	if f.python != "" {
		return f.python
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(ctx, python, "-c", hasNumPy).Run() == nil {
			return python
		}
	}
	return "python3"
}

// openWhole opens a data set of which each sample is one piece, so that it can be copied by itself.
func openWhole(
	ctx context.Context, path string, options index.OpenOptions,
) (*dataset.Manifest, error) {
	m, err := index.Open(ctx, path, options)
	if err == nil && m.Pieces() != nil {
		return nil, fmt.Errorf("%s: its samples are made of pieces, which they share: copy the folder "+
			"%s with \"rankpool stage\", and index the copy", path, m.Root())
	}
	return m, err
}
