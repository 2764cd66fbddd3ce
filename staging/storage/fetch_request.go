package storage

import "rankpool/staging/dataset"

// A result is the result of a request.
type result struct {
	failed   *Failure   // the whole request failed
	failures []*Failure // per sample; nil: none failed
}

// of returns why sample i of the flight could not be read; nil if it was.
func (g *result) of(i int) *Failure {
	if g.failed != nil || g.failures == nil {
		return g.failed
	}
	return g.failures[i]
}

// failedAny reports whether any sample could not be read.
func (g *result) failedAny() bool { return g.failed != nil || g.failures != nil }

// request performs a flight's request: it opens the file unless it is open, reads, and checks what
// it read.
func (f *Fetcher) request(fl *flight) (got result) {
	file := fl.file
	if file == nil {
		f.counters.opens.Add(1)
		var err error
		if file, err = f.opt.Storage.Open(f.manifest.Path(fl.reads[0].id)); err != nil {
			return result{failed: SystemFailure(err)}
		}
	}
	defer func() {
		if got.failedAny() || fl.reads[0].shard == nil || !f.keepOpen(fl.reads[0].shard, file) {
			_ = file.Close() // it was only read
		}
	}()
	f.read(fl, file, &got)
	if !got.failedAny() && !f.opt.KeepPageCache {
		file.Forget(fl.from, fl.size())
	}
	return got
}

// read reads the samples of a flight and checks them.
func (f *Fetcher) read(fl *flight, file File, got *result) {
	var onePiece [1]piece
	var oneTail [1][dataset.RecordCRCBytes]byte
	pieces, tails := onePiece[:0], oneTail[:]
	if len(fl.reads) > 1 {
		tails = make([][dataset.RecordCRCBytes]byte, len(fl.reads))
	}
	for i, r := range fl.reads {
		pieces = appendPieces(pieces, f.manifest, r.id, r.into, &tails[i])
	}
	n, err := readPieces(file, pieces)
	f.counters.storageBytes.Add(int64(n))
	if err != nil {
		got.failed = SystemFailure(err)
		return
	}
	size, modTime, err := file.Stat()
	if err != nil {
		got.failed = SystemFailure(err)
		return
	}
	for i, r := range fl.reads {
		want := len(r.into) + f.manifest.TailBytes(r.id)
		failed := check(f.manifest, r.id, r.into, &tails[i], min(n, want), want, fl.tries, size,
			modTime)
		n -= min(n, want)
		if failed == nil {
			continue
		}
		if got.failures == nil {
			got.failures = make([]*Failure, len(fl.reads))
		}
		got.failures[i] = failed
	}
}
