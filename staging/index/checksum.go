package index

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/storage"
)

// The samples that are checksummed together end after this many samples, or this many bytes. They
// are neighbours, so that one open of a shard serves many, and few enough that all ranks end at
// about the same time.
const (
	sumBatchSamples = 256
	sumBatchBytes   = 16 << 20
)

// sumBatches is how many batches a rank works on: while some are read, others are asked for.
const sumBatches = 4

// ChecksumOptions controls Checksums. The zero value is ready to use.
type ChecksumOptions struct {
	// called with the number of bytes done, never by two goroutines at a time
	Progress func(bytes int64)
	// the ranks that share the work; this process is rank 0. nil: it works alone
	Group *Group

	// Unreadable is called for each sample that cannot be read or differs from the manifest, never by
	// two goroutines at a time; the sample then has no checksum. nil: the first one ends the work.
	Unreadable func(*storage.SampleError)
}

// Checksums reads all samples of m in parallel and returns a copy of the manifest with their
// checksums. Each rank needs 64 MiB of memory, or that of its four largest samples.
//
// Errors: a SampleError, unless opt.Unreadable is set; ctx's end.
func Checksums(
	ctx context.Context,
	m *dataset.Manifest,
	opt ChecksumOptions,
) (*dataset.Manifest, error) {
	s := &summing{m: m, opt: opt, sums: make([]uint64, m.Len())}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	local := newSummer(m)
	defer local.fetcher.Close()
	var working sync.WaitGroup
	for range sumBatches {
		working.Go(func() { s.work(local.sum) })
	}
	for rank := 1; rank < opt.Group.Size(); rank++ {
		working.Go(func() { s.workOn(rank) })
	}
	working.Wait()
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

// workOn lets another rank work.
func (s *summing) workOn(rank int) {
	manifest, err := dataset.EncodeManifest(s.m)
	if err == nil {
		_, err = s.opt.Group.ask(s.ctx, rank, askManifest, manifest)
	}
	if err != nil {
		s.stop(err)
		return
	}
	var working sync.WaitGroup
	for range sumBatches {
		working.Go(func() {
			s.work(func(ctx context.Context, batch sumBatch) (results []sumResult, err error) {
				reply, err := s.opt.Group.ask(ctx, rank, askSums, ranks.Encode(batch))
				if err != nil {
					return nil, err
				}
				return results, ranks.Decode(reply, &results)
			})
		})
	}
	working.Wait()
}

// work computes checksums with sum until there are no more samples.
func (s *summing) work(sum func(context.Context, sumBatch) ([]sumResult, error)) {
	for {
		batch := s.take()
		if batch.First == batch.End || s.ctx.Err() != nil {
			return
		}
		results, err := sum(s.ctx, batch)
		if err == nil {
			err = s.finish(batch, results)
		}
		if err != nil {
			s.stop(err)
			return
		}
	}
}

// take assigns the next samples.
func (s *summing) take() (batch sumBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch.First = draw.SampleID(s.next)
	bytes := int64(0)
	for n := 0; s.next < s.m.Len() && n < sumBatchSamples && bytes < sumBatchBytes; n++ {
		bytes += s.m.Size(draw.SampleID(s.next))
		s.next++
	}
	batch.End = draw.SampleID(s.next)
	return batch
}

// finish stores the checksums of samples.
func (s *summing) finish(batch sumBatch, results []sumResult) error {
	s.telling.Lock()
	defer s.telling.Unlock()
	for i, result := range results {
		id := batch.First + draw.SampleID(i)
		s.done += s.m.Size(id)
		if result.Reason == "" {
			s.sums[id] = result.Sum
			continue
		}
		err := &storage.SampleError{ID: id, Path: s.m.RelPath(id), Reason: result.Reason}
		if s.opt.Unreadable == nil {
			return err
		}
		s.opt.Unreadable(err)
	}
	if s.opt.Progress != nil {
		s.opt.Progress(s.done)
	}
	return nil
}

// A sumBatch is the samples [First, End) of the manifest.
type sumBatch struct{ First, End draw.SampleID }

// A sumResult is a checksum, or why there is none (Reason as in SampleError).
type sumResult struct {
	Sum    uint64
	Reason string
}

// A summer computes checksums of a manifest's samples on this machine.
type summer struct {
	m       *dataset.Manifest
	fetcher *storage.Fetcher
}

func newSummer(m *dataset.Manifest) *summer {
	return &summer{m, storage.NewFetcher(m, storage.FetchOptions{Concurrency: concurrency})}
}

// sum computes the checksums of a batch. The error is ctx's.
func (s *summer) sum(ctx context.Context, batch sumBatch) ([]sumResult, error) {
	results := make([]sumResult, batch.End-batch.First)
	var reading sync.WaitGroup
	for i := range results {
		id := batch.First + draw.SampleID(i)
		sample := make([]byte, s.m.Size(id))
		reading.Add(1)
		s.fetcher.Fetch(id, sample, uint64(id), func(err error) {
			defer reading.Done()
			if failed, is := errors.AsType[*storage.SampleError](err); is {
				results[i].Reason = failed.Reason
				return
			}
			results[i].Sum = dataset.ChecksumOf(sample)
		})
	}
	reading.Wait()
	return results, context.Cause(ctx)
}

// setManifest receives the manifest whose samples rank 0 will ask for.
func (s *server) setManifest(data []byte) ([]byte, error) {
	m, err := dataset.DecodeManifest(data)
	if err != nil {
		return nil, err
	}
	s.setSummer(newSummer(m))
	return nil, nil
}

// setSummer closes the summer before. Requests that rank 0 no longer waits for may be at work.
func (s *server) setSummer(next *summer) {
	s.mu.Lock()
	before := s.sums
	s.sums = next
	s.mu.Unlock()
	if before != nil {
		before.fetcher.Close()
	}
}

func (s *server) summer() *summer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sums
}

// answerSums is the other side of summing.workOn.
func (s *server) answerSums(ctx context.Context, data []byte) ([]byte, error) {
	var batch sumBatch
	if err := ranks.Decode(data, &batch); err != nil {
		return nil, err
	}
	results, err := s.summer().sum(ctx, batch)
	if err != nil {
		return nil, err
	}
	return ranks.Encode(results), nil
}
