package rank

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/staging/index"
)

// A Choice says which files of a folder hold samples, and how.
type Choice struct {
	Only   []string
	Format string
}

// Register adds the flags, which run, index, stage and pack share.
func (c *Choice) Register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&c.Only, "only", nil, "of a folder, take only files with such names "+
		"('*.jpg', 'n0*/*.png'); repeatable")
	flags.StringVar(&c.Format, "format", formats[0], "auto: .tar and .tfrecord files hold "+
		"samples; files: each of them is one sample")
}

// formats are the values of --format.
var formats = []string{"auto", "files"}

// Check validates the flags.
func (c *Choice) Check() error {
	for _, pattern := range c.Only {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return exit.Usagef("--only: %q is not a pattern such as '*.jpg'", pattern)
		}
	}
	return OneOf("--format", c.Format, formats)
}

// Scan returns the options of a scan, which tells of the files that it has found, and of those that
// are not samples.
func (c *Choice) Scan(found func(files int64), notice func(sentence string)) index.ScanOptions {
	return index.ScanOptions{
		Only: c.Only, WholeFiles: c.Format == "files", Progress: found, Notice: notice,
	}
}

// A dataSet is one data set of a run: the name that training opens it by, and a folder or a
// manifest.
type dataSet struct{ Name, Path string }

func (d dataSet) String() string { return d.Name + "=" + d.Path }

var (
	// NamedData matches NAME=PATH.
	NamedData = regexp.MustCompile(`(?s)^([A-Za-z0-9][A-Za-z0-9_.-]*)=(.*)$`)
	notInName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// ResolveData reads the --data flags, each [NAME=]DIR or [NAME=]MANIFEST.
//
// An unnamed folder that holds splits (index.Splits) stands for them, each under its own name.
// Otherwise the Name is that of the folder or file, without extension, and with _ for characters
// that a name may not have. Paths become absolute. Errors: no data set, a path that does not exist,
// a duplicate name.
func ResolveData(flags []string) ([]dataSet, error) {
	if len(flags) == 0 {
		return nil, exit.NoData()
	}
	var sets []dataSet
	for _, flag := range flags {
		more, err := resolveOne(flag)
		if err != nil {
			return nil, err
		}
		sets = append(sets, more...)
	}
	seen := map[string]string{}
	for _, set := range sets {
		if other, found := seen[set.Name]; found {
			return nil,
				exit.Usagef("two data sets are called %q (%s and %s): give one another name "+
					"with --data NAME=PATH",
					set.Name, other, set.Path)
		}
		seen[set.Name] = set.Path
	}
	return sets, nil
}

func resolveOne(flag string) ([]dataSet, error) {
	name, path := "", flag
	// A folder such as date=2024-01-01 needs no name.
	if m := NamedData.FindStringSubmatch(flag); m != nil && (exists(m[2]) || !exists(flag)) {
		name, path = m[1], m[2]
	}
	if path == "" {
		return nil, exit.Usagef("--data %q names no folder and no manifest", flag)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("data set %s cannot be read: %w", flag, Pathless(err))
	}
	if name != "" {
		return []dataSet{{name, path}}, nil
	}
	splits, err := index.Splits(path)
	if err != nil {
		return nil, err
	}
	var sets []dataSet
	for _, split := range splits {
		sets = append(sets, dataSet{split, filepath.Join(path, split)})
	}
	if len(sets) > 0 {
		return sets, nil
	}
	name = filepath.Base(path)
	if !info.IsDir() {
		name = strings.TrimSuffix(name, filepath.Ext(name))
	}
	// The ranks are given NAME=PATH.
	name = strings.TrimLeft(notInName.ReplaceAllString(name, "_"), "_.-")
	if name == "" {
		name = "data"
	}
	return []dataSet{{name, path}}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// IsFolder reports whether path is a folder.
func IsFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
