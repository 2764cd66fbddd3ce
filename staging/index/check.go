package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/posix"
)

// spotChecks is how many samples of a manifest are compared with the file system before it is
// trusted: a tree with a share s of changed files passes with probability (1-s)^64, 4 % for 5 %.
const spotChecks = 64

// checkFolderTime returns an error if a folder of the data set below root has changed.
func checkFolderTime(root string, in dataset.Folder) error {
	path := filepath.Join(root, in.Path)
	_, modTime, problem := statFile(path)
	switch {
	case problem != "":
		return fmt.Errorf("%s %s", path, problem)
	case modTime != in.ModTime:
		return fmt.Errorf("folder %s has changed", path)
	}
	return nil
}

// checkSpread compares up to spotChecks samples, evenly spread from the first to the last, with the
// file system.
func checkSpread(ctx context.Context, m *dataset.Manifest) error {
	n := min(m.Len(), spotChecks)
	return inParallel(ctx, n, func(i int) error {
		return checkSample(m, draw.SampleID(i*(m.Len()-1)/max(1, n-1)))
	})
}

// checkSample compares sample id with the file system.
func checkSample(m *dataset.Manifest, id draw.SampleID) error {
	path := m.Path(id)
	size, modTime, problem := statFile(path)
	switch {
	case problem != "":
		return fmt.Errorf("%s %s", path, problem)
	case !m.SizeFits(id, size) && m.Format(id) == dataset.FormatFile:
		return fmt.Errorf("%s has size %d, not %d", path, size, m.Size(id))
	case !m.SizeFits(id, size):
		return fmt.Errorf("%s has size %d, less than %d", path, size, m.End(id))
	case modTime != m.ModTime(id):
		return fmt.Errorf("%s was modified at %s, not %s", path, dataset.TimeText(modTime),
			dataset.TimeText(m.ModTime(id)))
	}
	return nil
}

// statFile returns a file's size and modification time (ns), or what is wrong in words that follow
// its name.
func statFile(path string) (size, modTime int64, problem string) {
	var st unix.Stat_t
	err := posix.Retry(func() error { return unix.Stat(path, &st) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, 0, "is missing"
	case err != nil:
		return 0, 0, "cannot be examined: " + err.Error()
	}
	return st.Size, st.Mtim.Nano(), ""
}

// inParallel calls check(i) for i in [0, n) on a few goroutines, and returns the error of the
// smallest i that failed. After an error, or when ctx ends, it starts no more calls.
func inParallel(ctx context.Context, n int, check func(i int) error) error {
	var (
		mu    sync.Mutex
		first = n
		err   error
	)
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i := 0; i < n && running.Err() == nil; i++ {
		group.Go(func() error {
			checkErr := check(i)
			if checkErr != nil {
				mu.Lock()
				defer mu.Unlock()
				if i < first {
					first, err = i, checkErr
				}
			}
			return checkErr
		})
	}
	_ = group.Wait() // its error is that of whichever was first in time
	return cmp.Or(err, ctx.Err())
}
