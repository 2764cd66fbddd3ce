package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"

	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/storage"
)

// The batch of samples that a goroutine checksums at a time ends after this many samples, or this
// many bytes. Its samples are neighbours, so that one open of a shard serves many, and few enough
// that all goroutines end at about the same time.
const (
	sumBatchSamples = 256
	sumBatchBytes   = 16 << 20
)

// sumBuffer is how much a goroutine reads at a time: a stripe of Lustre, two chunks of BeeGFS.
const sumBuffer = 1 << 20

// sumTries is how often a read is tried if its error may be temporary (storage.Failure.MayPass).
const sumTries = 3

// ChecksumOptions controls Checksums. The zero value is ready to use.
type ChecksumOptions struct {
	Concurrency int // files that each rank reads at a time; 0: DefaultScanConcurrency
	// called with the number of bytes done, never by two goroutines at a time
	Progress func(bytes int64)
	// the ranks that share the work; this process is rank 0. nil: it works alone
	Group   *Group
	Storage storage.Storage // of this rank; nil: SystemStorage

	// Unreadable is called for each sample that cannot be read or differs from the manifest, never by
	// two goroutines at a time; the sample then has no checksum. nil: the first one ends the work.
	Unreadable func(*storage.SampleError)
}

// Checksums reads all samples of m in parallel and returns a copy of the manifest with their
// checksums. It needs 1 MiB of memory for each file being read, and 8 bytes per sample.
//
// Errors: a SampleError, unless opt.Unreadable is set; ctx's end.
func Checksums(
	ctx context.Context,
	m *dataset.Manifest,
	opt ChecksumOptions,
) (*dataset.Manifest, error) {
	opt.Storage = cmp.Or[storage.Storage](opt.Storage, storage.SystemStorage{})
	opt.Concurrency = cmp.Or(opt.Concurrency, DefaultScanConcurrency)
	s := &summing{m: m, opt: opt, sums: make([]uint64, m.Len())}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	local := &summer{opt.Storage, make(chan struct{}, opt.Concurrency)}
	var group sync.WaitGroup
	for range opt.Concurrency {
		group.Go(func() { s.work(local.sum) })
		for rank := 1; rank < opt.Group.Size(); rank++ {
			group.Go(func() {
				s.work(func(ctx context.Context, tasks []sumTask) ([]sumResult, error) {
					return opt.Group.sum(ctx, rank, tasks)
				})
			})
		}
	}
	group.Wait()
	err := context.Cause(s.ctx)
	if _, isSample := errors.AsType[*storage.SampleError](err); isSample {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("staging: checksums of %s: %w", m.Root(), err)
	}
	return m.WithChecksums(s.sums), nil
}

// summing is one call of Checksums.
type summing struct {
	m    *dataset.Manifest
	opt  ChecksumOptions
	ctx  context.Context
	stop context.CancelCauseFunc
	sums []uint64

	mu   sync.Mutex
	next int // the first unassigned sample

	telling sync.Mutex
	done    int64 // bytes
}

// work computes checksums with sum until there are no more samples.
func (s *summing) work(sum func(context.Context, []sumTask) ([]sumResult, error)) {
	for {
		ids, tasks := s.take()
		if len(ids) == 0 || s.ctx.Err() != nil {
			return
		}
		results, err := sum(s.ctx, tasks)
		if err == nil {
			err = s.finish(ids, results)
		}
		if err != nil {
			s.stop(err)
			return
		}
	}
}

// take assigns the next samples.
func (s *summing) take() (ids []draw.SampleID, tasks []sumTask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := int64(0)
	for ; s.next < s.m.Len() && len(ids) < sumBatchSamples && bytes < sumBatchBytes; s.next++ {
		id := draw.SampleID(s.next)
		ids, tasks = append(ids, id), append(tasks, s.task(id))
		bytes += s.m.Size(id)
	}
	return ids, tasks
}

// finish stores the checksums of samples.
func (s *summing) finish(ids []draw.SampleID, results []sumResult) error {
	s.telling.Lock()
	defer s.telling.Unlock()
	bytes := int64(0)
	for i, id := range ids {
		bytes += s.m.Size(id)
		if failed := results[i]; failed.Reason != "" {
			err := &storage.SampleError{
				ID: id, Path: s.m.RelPath(id), Reason: failed.Reason, Err: failed.err,
			}
			if s.opt.Unreadable == nil {
				return err
			}
			s.opt.Unreadable(err)
			continue
		}
		s.sums[id] = results[i].Sum
	}
	if s.done += bytes; s.opt.Progress != nil {
		s.opt.Progress(s.done)
	}
	return nil
}

// A sumTask is what a rank needs to compute a sample's checksum.
type sumTask struct {
	Path     string // absolute
	Whole    bool   // the sample is the whole file
	FileSize int64  // of a whole file; else the minimum
	ModTime  int64
	Parts    []sumPart
}

type sumPart struct{ Offset, Size int64 }

// A sumResult is a checksum, or why there is none (reason as in SampleError).
type sumResult struct {
	Sum    uint64
	Reason string
	err    error
}

func (s *summing) task(id draw.SampleID) sumTask {
	m := s.m
	t := sumTask{
		Path: m.Path(id), Whole: m.Format(id) == dataset.FormatFile, FileSize: m.End(id),
		ModTime: m.ModTime(id),
	}
	for offset, sizeBytes := range m.Ranges(id) {
		t.Parts = append(t.Parts, sumPart{offset, sizeBytes})
	}
	return t
}

// A summer computes checksums from a storage, of at most cap(places) files at a time.
type summer struct {
	storage storage.Storage
	places  chan struct{}
}

var sumBuffers = sync.Pool{New: func() any { buffer := make([]byte, sumBuffer); return &buffer }}

// sum computes the checksums of tasks, opening a file once for its adjacent samples. The error is
// ctx's.
func (s *summer) sum(ctx context.Context, tasks []sumTask) ([]sumResult, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	s.places <- struct{}{}
	defer func() { <-s.places }()
	buffer := sumBuffers.Get().(*[]byte)
	defer sumBuffers.Put(buffer)
	var results []sumResult
	for len(results) < len(tasks) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		rest := tasks[len(results):]
		n := 1
		for n < len(rest) && rest[n].Path == rest[0].Path {
			n++
		}
		sums, failed := s.sumFile(rest[:n], *buffer)
		for tries := 1; failed != nil && failed.MayPass && tries < sumTries; tries++ {
			sums, failed = s.sumFile(rest[:n], *buffer)
		}
		if failed != nil {
			sums = make([]sumResult, n)
			for i := range sums {
				sums[i] = sumResult{0, failed.Reason, failed.Err}
			}
		}
		results = append(results, sums...)
	}
	return results, nil
}

// sumFile computes the checksums of samples of one file. It checks the file's size and modification
// time after the read, which detects any change of the file before or during the read that affects
// them.
func (s *summer) sumFile(tasks []sumTask, buffer []byte) ([]sumResult, *storage.Failure) {
	file, err := s.storage.Open(tasks[0].Path)
	if err != nil {
		return nil, storage.SystemFailure(err)
	}
	defer func() { _ = file.Close() }() // it was only read
	results := make([]sumResult, len(tasks))
	short := false
	hash := xxh3.New()
	for i, t := range tasks {
		hash.Reset()
		for _, part := range t.Parts {
			for at, end := part.Offset, part.Offset+part.Size; at < end; {
				got, err := storage.ReadFull(file, buffer[:min(int64(len(buffer)), end-at)], at)
				if err != nil {
					return nil, storage.SystemFailure(err)
				}
				if short = short || got == 0; got == 0 {
					break
				}
				_, _ = hash.Write(buffer[:got]) // a hash returns no error
				at += int64(got)
			}
			file.Forget(part.Offset, part.Size)
		}
		results[i].Sum = hash.Sum64()
	}
	size, modTime, err := file.Stat()
	if err != nil {
		return nil, storage.SystemFailure(err)
	}
	for i, t := range tasks {
		switch {
		case t.Whole && size != t.FileSize:
			results[i].Reason = fmt.Sprintf("has %d bytes, the manifest says %d", size, t.FileSize) +
				storage.IndexAgain
		case size < t.FileSize:
			results[i].Reason = fmt.Sprintf("has %d bytes, the manifest says at least %d", size,
				t.FileSize) + storage.IndexAgain
		case modTime != t.ModTime:
			results[i].Reason = fmt.Sprintf("was modified at %s, the manifest says %s",
				dataset.TimeText(modTime), dataset.TimeText(t.ModTime)) + storage.IndexAgain
		case short:
			return nil, &storage.Failure{
				Reason: "ends early",
				Err:    errors.New("a read ended before the file's size"), MayPass: true,
			}
		}
	}
	return results, nil
}

// sum computes checksums on another rank.
func (g *Group) sum(ctx context.Context, rank int, tasks []sumTask) ([]sumResult, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	reply, err := g.ask(ctx, rank, askSums, ranks.Encode(tasks))
	if err != nil {
		return nil, err
	}
	var results []sumResult
	return results, ranks.Decode(reply, &results)
}

// answerSums is the other side of Group.sum.
func (s *server) answerSums(ctx context.Context, data []byte) ([]byte, error) {
	var tasks []sumTask
	if err := ranks.Decode(data, &tasks); err != nil {
		return nil, err
	}
	results, err := s.sums.sum(ctx, tasks)
	if err != nil {
		return nil, err
	}
	return ranks.Encode(results), nil
}
