package index

import (
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rankpool/staging/dataset"
	"rankpool/staging/shards"
)

// A shardFile is a file of a scanned folder that may hold many samples.
type shardFile struct {
	scannedFile
	path     string // absolute
	format   dataset.Format
	doubtful bool // its name is not certain to be that of a TFRecord file
	contents *shards.Contents
}

// newShardFile returns a file of the folder in as a shard; nil if its name is not that of one.
func (s *scanner) newShardFile(in *scannedFolder, file *scannedFile) *shardFile {
	format := formatByName(file.Name)
	doubtful := format == dataset.FormatFile && mayBeTFRecord(file.Name)
	switch {
	case doubtful:
		format = dataset.FormatTFRecord
	case format == dataset.FormatFile:
		return nil
	}
	path := s.abs(in.path) + "/" + file.Name
	return &shardFile{scannedFile: *file, path: path, format: format, doubtful: doubtful}
}

// shards finds the samples in all shards of the scanned folders, except in archives beside class
// folders of images. The keys of the result point into the folders' files.
func (s *scanner) shards(kind string) (map[*scannedFile]*shardFile, error) {
	found := make(map[*scannedFile]*shardFile)
	if s.opt.WholeFiles {
		return found, nil
	}
	var list []*shardFile
	for i, in := range s.folders {
		for j := range in.Files {
			file := &in.Files[j]
			if sh := s.newShardFile(in, file); sh != nil {
				found[file], list = sh, append(list, sh)
			}
		}
		if i == 0 && kind == images && len(list) < len(s.folders) {
			clear(found)
			list = nil
		}
	}
	var mu sync.Mutex
	var samples atomic.Int64
	err := inParallel(s.ctx, len(list), func(i int) error {
		if err := list[i].read(); err != nil {
			return err
		}
		if list[i].contents == nil {
			return nil
		}
		total := samples.Add(int64(len(list[i].contents.Samples)))
		if s.opt.Progress != nil {
			mu.Lock()
			defer mu.Unlock()
			s.opt.Progress(s.files + total)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("staging: scan of %s: %w", s.root, err)
	}
	for _, sh := range list {
		if c := sh.contents; c != nil && c.Unlabelled != "" {
			s.notice(fmt.Sprintf("%s has no class number in a .cls member of the sample %q, though others "+
				"have one: they do not label its samples", sh.path, c.Unlabelled))
		}
	}
	maps.DeleteFunc(found, func(_ *scannedFile, sh *shardFile) bool { return sh.contents == nil })
	return found, nil
}

// read finds the samples in the file, which must not have changed since it was listed.
func (f *shardFile) read() error {
	file, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	switch f.format {
	case dataset.FormatTar:
		f.contents, err = shards.Tar(file, f.Size)
	case dataset.FormatTFRecord:
		if f.doubtful && !shards.IsTFRecord(file, f.Size) {
			return f.checkGzip(file)
		}
		f.contents, err = shards.TFRecord(file, f.Size)
	}
	size, modTime, problem := statFile(f.path)
	switch {
	case problem != "":
		return fmt.Errorf("%s %s", f.path, problem)
	case size != f.Size || modTime != f.ModTime:
		return fmt.Errorf("%s changes while it is indexed: index it when nothing writes to it any more",
			f.path)
	case err != nil:
		return fmt.Errorf("%s %w", f.path, err)
	}
	return nil
}

// checkGzip returns an error if the file is compressed, as TensorFlow names compressed shards
// like others.
func (f *shardFile) checkGzip(in io.ReaderAt) error {
	var magic [2]byte
	n, _ := in.ReadAt(magic[:], 0) // a shorter file is not compressed
	if n == 2 && string(magic[:]) == "\x1f\x8b" {
		return fmt.Errorf("%s %s", f.path, isCompressed)
	}
	return nil
}
