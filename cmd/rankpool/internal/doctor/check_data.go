package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rankpool/staging/layout"
)

const (
	fewSamples = 8       // read on each node
	manyFiles  = 64      // whose layout is read
	readBytes  = 1 << 20 // of each file
	slowRead   = 100 * time.Millisecond
	slowest    = time.Second
	// from this size a file should be on several targets. Source: NERSC, Lustre striping: 1 GB and up.
	largeFile = 1 << 30
)

// eachData runs a check for every data set; if there are several, the detail begins with its name.
func eachData(env *Env, check func(data string) []Finding) []Finding {
	var all []Finding
	for _, data := range env.Data {
		for _, f := range check(data) {
			if len(env.Data) > 1 {
				f.Detail = verbatim(filepath.Base(data)) + ": " + f.Detail
			}
			all = append(all, f)
		}
	}
	return all
}

// missing is the finding for a data set that does not exist.
func missing(err error) []Finding {
	return bad(err.Error(), "look whether the file system is mounted on this node, and whether the "+
		"name is right")
}

// checkData checks that the data set exists, and its file system.
func checkData(env *Env) []Finding {
	return eachData(env, func(data string) []Finding {
		info, err := env.Machine.Stat(data)
		if err != nil {
			return missing(err)
		}
		need := uint32(readable)
		if info.IsDir() {
			need |= 1
		}
		if err := env.Machine.Access(data, need); err != nil {
			return bad(fmt.Sprintf("%s may not be read: %v", data, err),
				"check its permissions, and your groups on this node")
		}
		fs, err := env.Machine.FileSystem(data)
		if err != nil {
			return warning(err.Error(), "look whether the file system answers on this node")
		}
		if env.Rank == 0 && fs.Reach == Local && env.Job.Nodes > 1 {
			return warning(fmt.Sprintf("%s is on %s, which is of this node alone", data, fs.Type),
				"all ranks must see the same files: put the data on a shared file system, or the same copy "+
					"on each node")
		}
		return good(fmt.Sprintf("%s is on %s", data, fs.Type))
	})
}

// checkIndex looks for a manifest, without which each start of the cache scans the folder.
func checkIndex(env *Env) []Finding {
	return eachData(env, func(data string) []Finding {
		path, found, err := env.Machine.Index(data)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return missing(err)
		case err != nil: // it may be anything, so the advice must not overwrite it
			return bad(fmt.Sprintf("%s cannot be used: %v", path, err),
				"--data takes a folder, or a manifest that \"rankpool index\" wrote")
		case found && path == data:
			return good("the data set is named by its manifest")
		case found:
			return good("its manifest is " + path)
		}
		return warning("no manifest: the first start scans all folders",
			"make one: rankpool index "+data+" -o "+filepath.Base(data)+".parquet, and use that as --data")
	})
}

// checkLayout reads the layouts of some files, but not their content.
func checkLayout(env *Env) []Finding {
	return eachData(env, func(data string) []Finding {
		samples, err := env.Machine.Samples(data, manyFiles)
		if err != nil || len(samples) == 0 {
			return nil // check "read" reports it
		}
		var known, offline, narrow int
		kinds := map[string]int{}
		for _, s := range samples {
			l, err := env.Machine.Layout(s.Path)
			if err != nil || l.FileSystem == "" {
				continue
			}
			known++
			kinds[fmt.Sprintf("%s %s over %d", l.FileSystem, l.Kind, len(l.Targets()))]++
			if l.Offline() {
				offline++
			}
			if s.Bytes >= largeFile && len(l.Targets()) == 1 && l.TargetAt(s.Bytes-1) != layout.NoTarget {
				narrow++
			}
		}
		return layoutFindings(len(samples), known, offline, narrow, kinds)
	})
}

func layoutFindings(looked, known, offline, narrow int, kinds map[string]int) []Finding {
	var found []Finding
	if offline > 0 {
		found = append(found, bad(fmt.Sprintf("%d of %d files that were checked are only in the "+
			"archive: a read waits for a tape", offline, looked),
			"bring them back first, with \"lfs hsm_restore\" or \"beegfs remote pull\"")...)
	}
	if narrow > 0 {
		found = append(found, warning(fmt.Sprintf("%d of %d files that were checked have 1 GiB or more "+
			"on one storage target", narrow, looked), "spread them: \"lfs migrate -c 8 FILE\"")...)
	}
	switch {
	case found != nil:
		return found
	case known == 0:
		return good("no layout: the file system does not report one")
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return good(fmt.Sprintf("of %d files: %s", looked, strings.Join(parts, ", ")))
}

// checkRead reads a few files, but none that is only in the archive. It is no measurement: caches
// may hold the files.
func checkRead(env *Env) []Finding {
	return eachData(env, func(data string) []Finding {
		samples, err := env.Machine.Samples(data, fewSamples)
		if err != nil {
			return bad(fmt.Sprintf("no file can be found: %v", err),
				"look whether the data is complete and may be read on this node")
		}
		var took []time.Duration
		for _, s := range samples {
			if l, err := env.Machine.Layout(s.Path); err == nil && l.Offline() {
				continue
			}
			d, err := env.Machine.TimeRead(s.Path, readBytes)
			if err != nil {
				return bad(fmt.Sprintf("a file cannot be read: %v", err),
					"look whether the data is complete and may be read on this node")
			}
			took = append(took, d)
		}
		if len(took) == 0 {
			return warning("no file to read was found: the first folders hold none, or all are only in the "+
				"archive", "look whether --data names the right folder")
		}
		slices.Sort(took)
		median, last := took[len(took)/2], took[len(took)-1]
		detail := fmt.Sprintf("opening and reading %d files took {}, the slowest {} (their first MiB, "+
			"caches included)", len(took))
		if median > slowRead || last > slowest {
			return warning(detail, "the file system is slow now: see what else uses it; "+
				"\"rankpool pack\" makes fewer files of many, "+
				"\"rankpool stage\" brings them to the nodes", lasting(median), lasting(last))
		}
		return good(detail, lasting(median), lasting(last))
	})
}

// checkXattr checks whether staging can keep the attributes of the data.
func checkXattr(env *Env) []Finding {
	return eachData(env, func(data string) []Finding {
		err := env.Machine.ListXattr(data)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return missing(err)
		case err != nil:
			return good(fmt.Sprintf("no extended attributes (%v), which nothing needs here, but "+
				"Lustre's layouts are then unknown", err))
		}
		return good("extended attributes can be read")
	})
}
