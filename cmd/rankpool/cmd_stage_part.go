package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/pack"
	"rankpool/staging/stage"
)

// A stagePart is the part of a data set to stage; the zero value is all of it.
type stagePart struct {
	list       string
	rows       string
	top        string
	importance string
}

func (p *stagePart) register(flags *pflag.FlagSet) {
	flags.StringVar(&p.list, "list", "",
		"stage only the files and folders that this file names, one a line, relative to SRC; -: "+
			"standard input of rank 0")
	flags.StringVar(&p.rows, "rows", "",
		"stage only these samples, FROM:TO without TO, in the order of the manifest")
	flags.StringVar(&p.top, "top", "", "stage only the most important samples: a share (20%), a "+
		"number, or as many as fit into a size (64GiB)")
	flags.StringVar(&p.importance, "importance", "",
		"the samples' importance, for --top: a .npy file, or one number a line")
}

func (p *stagePart) check() error {
	parts := []string{p.list, p.rows, p.top}
	switch {
	case len(slices.DeleteFunc(parts, func(flag string) bool { return flag == "" })) > 1:
		return exit.Usagef("--list, --rows and --top name different parts: give one of them")
	case (p.top == "") != (p.importance == ""):
		return exit.Usagef(
			"--top and --importance need each other, as in: --top 20%% --importance losses.npy")
	}
	return nil
}

// plan makes the plan of the part, of samples that are found as options say.
func (p *stagePart) plan(
	ctx context.Context, data string, found func(items int64), options index.ScanOptions,
) (*stage.Plan, error) {
	info, err := os.Stat(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", rank.Pathless(err), data)
	}
	manifest := !info.IsDir() && filepath.Ext(data) == ".parquet"
	switch {
	case p.list != "" && manifest:
		return nil, exit.Usagef("--list names paths of a folder, and %s is a manifest: use --rows",
			data)
	case p.list != "":
		return p.listed(ctx, data, found)
	case manifest || p.rows != "" || p.top != "" || len(options.Only) > 0:
		m, err := openWhole(ctx, data, index.OpenOptions{ScanOptions: options})
		if err != nil {
			return nil, err
		}
		ids, err := p.samples(m)
		if err != nil {
			return nil, err
		}
		return stage.Select(ctx, m.Root(), filesOf(m, ids), found)
	}
	return stage.Walk(ctx, data, found)
}

// listed makes the plan of the files and folders that --list names, relative to data.
func (p *stagePart) listed(
	ctx context.Context, data string, found func(items int64),
) (*stage.Plan, error) {
	in, err := openInput(p.list, os.Stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	list, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("--list: %w", err)
	}
	part, err := stage.ReadList(string(list), data)
	if err != nil {
		return nil, err
	}
	return stage.Select(ctx, data, part, found)
}

// samples returns the ids of the part.
func (p *stagePart) samples(m *dataset.Manifest) ([]draw.SampleID, error) {
	switch {
	case p.rows != "":
		from, to, found := strings.Cut(p.rows, ":")
		begin, err1 := strconv.Atoi(cmp.Or(from, "0"))
		end, err2 := strconv.Atoi(cmp.Or(to, strconv.Itoa(m.Len())))
		if !found || err1 != nil || err2 != nil || begin < 0 || end < begin || end > m.Len() {
			return nil, exit.Usagef("--rows: %q is not a range FROM:TO in 0:%d", p.rows, m.Len())
		}
		return pack.AsIs(m.Len())[begin:end], nil
	case p.top == "":
		return pack.AsIs(m.Len()), nil
	}
	scores, err := importanceOf(m, p.importance)
	if err != nil {
		return nil, err
	}
	ids := pack.ByImportance(scores)
	n, err := topCount(p.top, m, ids)
	return ids[:n], err
}

// topCount returns how many of ids, the most important first, --top asks for.
func topCount(top string, m *dataset.Manifest, ids []draw.SampleID) (int, error) {
	if n, err := strconv.Atoi(top); err == nil && n >= 0 {
		return min(n, len(ids)), nil
	}
	limit, err := memory.Parse(top)
	if err != nil {
		return 0, exit.Usagef("--top: %q is not a share (20%%), number (1000) or size (64GiB)", top)
	}
	if limit.IsShare {
		return int(math.Ceil(limit.Share * float64(len(ids)))), nil
	}
	left := limit.Bytes
	for n, id := range ids {
		if left -= m.Size(id); left < 0 {
			return n, nil
		}
	}
	return len(ids), nil
}

// filesOf returns the files that hold samples, each once.
func filesOf(m *dataset.Manifest, ids []draw.SampleID) []stage.Selected {
	var files []stage.Selected
	seen := map[string]bool{}
	for _, id := range ids {
		path := m.RelPath(id)
		if seen[path] {
			continue
		}
		seen[path] = true
		file := stage.Selected{Path: path, Indexed: true, Size: -1, ModTime: m.ModTime(id)}
		if m.Format(id) == dataset.FormatFile {
			file.Size = m.Size(id)
			file.Sum, _ = m.Checksum(id)
		}
		files = append(files, file)
	}
	return files
}
