package index

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rankpool/staging/dataset"
	"rankpool/staging/shards"
)

// tfRecordName matches the names of TFRecord files: x.tfrecord, x.tfrecords, x.tfrec, each also as
// part of a set, x.tfrecord-00001-of-00128.
var tfRecordName = regexp.MustCompile(`\.(tfrecords?|tfrec)(-[0-9]+-of-[0-9]+)?$`)

// formatByName returns the format of the samples in a file of this name.
func formatByName(name string) dataset.Format {
	switch lower := shards.LowerASCII(name); {
	case strings.HasSuffix(lower, ".tar"):
		return dataset.FormatTar
	case strings.HasSuffix(lower, ".npy"):
		return dataset.FormatNPY
	case tfRecordName.MatchString(lower):
		return dataset.FormatTFRecord
	}
	return dataset.FormatFile
}

// A shardFile is a file of a scanned folder that may hold many samples.
type shardFile struct {
	scannedFile
	path     string // absolute
	format   dataset.Format
	contents *shards.Contents
}

// shards finds the samples in all shards of the scanned folders. The keys of the result point into
// the folders' files.
func (s *scanner) shards() (map[*scannedFile]*shardFile, error) {
	found := make(map[*scannedFile]*shardFile)
	if s.opt.WholeFiles {
		return found, nil
	}
	var list []*shardFile
	for _, in := range s.folders {
		for i := range in.files {
			file := &in.files[i]
			if format := formatByName(file.name); format != dataset.FormatFile {
				path := s.abs(in.path) + "/" + file.name
				sh := &shardFile{scannedFile: *file, path: path, format: format}
				found[file], list = sh, append(list, sh)
			}
		}
	}
	var mu sync.Mutex
	var samples atomic.Int64
	err := inParallel(s.ctx, len(list), s.opt.Concurrency, func(i int) error {
		if err := list[i].read(s.ctx); err != nil {
			return err
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
	return found, nil
}

// read finds the samples in the file, which must not have changed since it was listed.
func (f *shardFile) read(ctx context.Context) error {
	file, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	in := &cancellable{ctx, file}
	switch f.format {
	case dataset.FormatTar:
		f.contents, err = shards.Tar(in, f.size)
	case dataset.FormatTFRecord:
		f.contents, err = shards.TFRecord(in, f.size)
	case dataset.FormatNPY:
		f.contents, err = shards.NPY(in, f.size)
	}
	size, modTime, problem := statFile(f.path)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case problem != "":
		return fmt.Errorf("%s %s", f.path, problem)
	case size != f.size || modTime != f.modTime:
		return fmt.Errorf("%s changes while it is indexed: index it when nothing writes to it any more",
			f.path)
	case err != nil:
		return fmt.Errorf("%s %w", f.path, err)
	}
	return nil
}

// A cancellable is a file that can no longer be read once ctx has ended.
type cancellable struct {
	ctx  context.Context
	file *os.File
}

func (c *cancellable) ReadAt(p []byte, off int64) (int, error) {
	if c.ctx.Err() != nil {
		return 0, io.ErrUnexpectedEOF
	}
	return c.file.ReadAt(p, off)
}
