package staging

import (
	"math/bits"
	"sync"

	"rankpool/scheduler"
)

// A result is what a request brought.
type result struct {
	failed   *failure   // of the whole request
	failures []*failure // of its samples; nil: of none
	own      [][]byte   // the samples' bytes, when they are in a buffer of the request's own
	buffer   []byte     // that buffer
}

// of returns why sample i of the flight could not be read; nil when it was.
func (g *result) of(i int) *failure {
	if g.failed != nil || g.failures == nil {
		return g.failed
	}
	return g.failures[i]
}

// copyTo copies sample i into the caller's memory, unless it is there, or wrong.
func (g *result) copyTo(i int, into []byte) {
	if g.own != nil && g.of(i) == nil {
		copy(into, g.own[i])
	}
}

// release gives the request's buffer back.
func (g *result) release() { buffers.put(g.buffer) }

// failedAny reports whether some sample could not be read.
func (g *result) failedAny() bool { return g.failed != nil || g.failures != nil }

// request does one request of a flight: it opens the file unless it is given, reads, and checks what was read.
func (f *Fetcher) request(fl *flight, file StorageFile) (got result) {
	if file == nil {
		f.counters.opens.Add(1)
		var err error
		if file, err = f.opt.Storage.Open(f.manifest.Path(fl.reads[0].id)); err != nil {
			return result{failed: systemFailure(err)}
		}
	}
	defer func() {
		if got.failedAny() || fl.reads[0].shard == nil || !f.keepOpen(fl.reads[0].shard, file) {
			_ = file.Close() // it was only read
		}
	}()
	var one [1][]byte
	into := one[:0]
	if fl.memory.CompareAndSwap(unclaimed, direct) {
		for _, r := range fl.reads {
			into = append(into, r.into)
		}
	} else {
		into, got.buffer = ownMemory(fl.reads)
		got.own = into
	}
	f.read(fl, file, into, &got)
	if !got.failedAny() && !f.opt.KeepPageCache {
		file.Forget(fl.from, fl.size())
	}
	return got
}

// read reads the samples of a flight and checks them.
func (f *Fetcher) read(fl *flight, file StorageFile, into [][]byte, got *result) {
	var onePiece [1]piece
	var oneTail [1][crcBytes]byte
	pieces, tails := onePiece[:0], oneTail[:]
	if len(fl.reads) > 1 {
		tails = make([][crcBytes]byte, len(fl.reads))
	}
	for i, r := range fl.reads {
		pieces = f.manifest.appendPieces(pieces, r.id, into[i], &tails[i])
	}
	n, err := readPieces(file, pieces)
	f.counters.storageBytes.Add(int64(n))
	if err != nil {
		got.failed = systemFailure(err)
		return
	}
	size, modTime, err := file.Stat()
	if err != nil {
		got.failed = systemFailure(err)
		return
	}
	for i, r := range fl.reads {
		want := len(r.into) + f.manifest.tailBytes(r.id)
		failed := f.manifest.check(r.id, into[i], &tails[i], min(n, want), want, fl.tries, size, modTime)
		n -= min(n, want)
		if failed == nil {
			continue
		}
		if got.failures == nil {
			got.failures = make([]*failure, len(fl.reads))
		}
		got.failures[i] = failed
	}
}

// bounds returns the range of the file that holds all bytes of sample id.
func (m *Manifest) bounds(id scheduler.SampleID) (from, to int64) {
	from = m.Offset(id)
	for i, last := m.members.span(id); i < last; i++ {
		from = min(from, m.members.offsets[i])
	}
	return from, m.end(id)
}

// tailBytes returns the size of the checksum that is read behind sample id.
func (m *Manifest) tailBytes(id scheduler.SampleID) int {
	if m.Format(id) == FormatTFRecord {
		return crcBytes
	}
	return 0
}

// ownMemory returns memory for each read's sample, and the buffer that it lies in.
func ownMemory(reads []*read) (into [][]byte, buffer []byte) {
	total := 0
	for _, r := range reads {
		total += len(r.into)
	}
	buffer = buffers.get(total)
	into = make([][]byte, len(reads))
	at := 0
	for i, r := range reads {
		into[i] = buffer[at : at+len(r.into) : at+len(r.into)]
		at += len(r.into)
	}
	return into, buffer
}

// buffers are the requests' own, in powers of two. They are kept between requests, but the collector may take them.
var buffers bufferPools

type bufferPools [48]sync.Pool

// get returns a buffer of n bytes.
func (p *bufferPools) get(n int) []byte {
	class := bits.Len(uint(max(n, 1) - 1))
	if kept, ok := p[class].Get().(*[]byte); ok {
		return (*kept)[:n]
	}
	return make([]byte, n, 1<<class)
}

// put takes back a buffer that get returned, or nil.
func (p *bufferPools) put(buffer []byte) {
	if cap(buffer) > 0 {
		p[bits.Len(uint(cap(buffer)-1))].Put(&buffer)
	}
}
