package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

const (
	fewSamples = 8       // read on each node
	readBytes  = 1 << 20 // of each file
	slowRead   = 100 * time.Millisecond
	slowest    = time.Second
)

// eachData runs a check for every data set; if there are several, the detail begins with its name.
func eachData(env *Env, check func(data string) []Finding) []Finding {
	var all []Finding
	for _, data := range env.Data {
		for _, f := range check(data) {
			if len(env.Data) > 1 {
				f.Detail = filepath.Base(data) + ": " + f.Detail
			}
			all = append(all, f)
		}
	}
	return all
}

// checkData checks each data set: whether it is there, has a manifest, and can be read.
func checkData(env *Env) []Finding {
	return eachData(env, func(data string) []Finding {
		found := checkPlace(env, data)
		if Worst(found) == Bad {
			return found // it cannot be read
		}
		manifest := checkManifest(env, data)
		found = append(found, manifest...)
		if Worst(manifest) == Bad {
			return found
		}
		return append(found, checkRead(env, data)...)
	})
}

// checkPlace checks that the data set exists, and its file system.
func checkPlace(env *Env, data string) []Finding {
	if _, err := env.Machine.Stat(data); err != nil {
		return bad(err.Error(), "look whether the file system is mounted on this node, and whether the "+
			"name is right")
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
}

// checkManifest looks for a manifest, without which each start of the cache scans the folder.
func checkManifest(env *Env, data string) []Finding {
	path, found, err := env.Machine.Index(data)
	switch {
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
}

// checkRead reads a few files, but none that is only in the archive. It is no measurement: caches
// may hold the files.
func checkRead(env *Env, data string) []Finding {
	samples, err := env.Machine.Samples(data, fewSamples)
	if err != nil {
		return unreadable(fmt.Errorf("no file can be found: %w", err))
	}
	var took []time.Duration
	archived := 0
	for _, s := range samples {
		if env.Machine.Archived(s) {
			archived++
			continue
		}
		d, err := env.Machine.TimeRead(s, readBytes)
		if err != nil {
			return unreadable(fmt.Errorf("a file cannot be read: %w", err))
		}
		took = append(took, d)
	}
	switch {
	case archived > 0:
		return bad(fmt.Sprintf("%d of %d files that were checked are only in the archive: a read waits "+
			"for a tape", archived, len(samples)),
			"bring them back first, with \"lfs hsm_restore\" or \"beegfs remote pull\"")
	case len(took) == 0:
		return warning("no file to read was found: the first folders hold none",
			"look whether --data names the right folder")
	}
	slices.Sort(took)
	median, last := took[len(took)/2], took[len(took)-1]
	times := []Amount{{median.Seconds(), Seconds}, {last.Seconds(), Seconds}}
	detail := fmt.Sprintf("opening and reading %d files took {}, the slowest {} (their first MiB, "+
		"caches included)", len(took))
	if median > slowRead || last > slowest {
		return warning(detail, "the file system is slow now: see what else uses it; "+
			"\"rankpool pack\" makes fewer files of many, "+
			"\"rankpool stage\" brings them to the nodes", times...)
	}
	return good(detail, times...)
}

func unreadable(err error) []Finding {
	return bad(err.Error(), "look whether the data is complete, and its permissions and your groups "+
		"on this node")
}
