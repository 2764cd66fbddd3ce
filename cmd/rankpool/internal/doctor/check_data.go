package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"rankpool/staging/index"
	"rankpool/staging/posix"
)

// fewFiles is how many files of a data set are looked at on each node.
const fewFiles = 8

// checkData checks each data set: whether it is there, has a manifest, and can be read. If there
// are several, the detail begins with its name.
func checkData(env *Env) []Finding {
	var all []Finding
	for _, data := range env.Data {
		found := checkPlace(env, data)
		if Worst(found) != Bad {
			found = append(found, checkFiles(env, data)...)
		}
		for _, f := range found {
			if len(env.Data) > 1 {
				f.Detail = filepath.Base(data) + ": " + f.Detail
			}
			all = append(all, f)
		}
	}
	return all
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
	if local := fs.Reach == posix.Disk || fs.Reach == posix.Memory; env.Rank == 0 && local &&
		env.Job.Nodes > 1 {
		return warning(fmt.Sprintf("%s is on %s, which is of this node alone", data, fs.Type),
			"all ranks must see the same files: put the data on a shared file system, or the same copy "+
				"on each node")
	}
	return good(fmt.Sprintf("%s is on %s", data, fs.Type))
}

// checkFiles looks for a manifest, without which each start of the cache scans the folder, and
// opens a few of its files, but none that is only in the archive.
func checkFiles(env *Env, data string) []Finding {
	manifest, files, err := env.Machine.Manifest(data, fewFiles)
	switch {
	case err != nil && index.MadeOfPieces(data, false):
		return bad("samples of "+data+" are not files, but parts of one",
			"make a manifest: rankpool index "+data+" --rows ROWS -o "+
				strings.TrimSuffix(filepath.Base(data), filepath.Ext(data))+".parquet, and use that as --data")
	case err != nil: // it may be anything, so the advice must not overwrite it
		return bad(fmt.Sprintf("%s cannot be used: %v", manifest, err),
			"--data takes a folder, or a manifest that \"rankpool index\" wrote")
	case manifest == "":
		return warning("no manifest: the first start scans all folders",
			"make one: rankpool index "+data+" -o "+filepath.Base(data)+".parquet, and use that as --data")
	}
	archived := 0
	for _, file := range files {
		if env.Machine.Archived(file) {
			archived++
		} else if err := env.Machine.Open(file); err != nil {
			return bad(fmt.Sprintf("a file cannot be read: %v", err),
				"look whether the data is complete, and its permissions and your groups on this node")
		}
	}
	if archived > 0 {
		return bad(fmt.Sprintf("%d of %d files that were checked are only in the archive: a read waits "+
			"for a tape", archived, len(files)),
			"bring them back first, with \"lfs hsm_restore\" or \"beegfs remote pull\"")
	}
	return good(fmt.Sprintf("its manifest is %s; %d of its files can be opened", manifest, len(files)))
}
