package storage

import (
	"slices"

	"rankpool/staging/dataset"
)

// failures are why the samples of a flight could not be read, nil for one that was; none failed if
// the list is nil.
type failures []*Failure

func (list failures) of(i int) *Failure {
	if list == nil {
		return nil
	}
	return list[i]
}

// fail returns the failures of a request that failed as a whole.
func (fl *flight) fail(err error) failures {
	return slices.Repeat(failures{SystemFailure(err)}, len(fl.reads))
}

// request performs a flight's request: it opens the file unless it is open, reads, and checks what
// it read.
func (f *Fetcher) request(fl *flight) (failed failures) {
	defer func() { f.leaveFile(fl, failed != nil) }()
	o := fl.file
	if fl.opens {
		o.file, o.err = f.opt.Storage.Open(f.manifest.Path(fl.reads[0].id))
		close(o.opened)
	}
	if <-o.opened; o.err != nil {
		return fl.fail(o.err)
	}
	failed = f.read(fl, o.file)
	if failed == nil {
		o.file.Forget(fl.from, fl.size()) // the slab holds it
	}
	return failed
}

// read reads the samples of a flight and checks them.
func (f *Fetcher) read(fl *flight, file File) (failed failures) {
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
	fl.got = n
	if err != nil {
		return fl.fail(err)
	}
	size, modTime, err := file.Stat()
	if err != nil {
		return fl.fail(err)
	}
	for i, r := range fl.reads {
		want := len(r.into) + f.manifest.TailBytes(r.id)
		got := min(n, want)
		n -= got
		failure := check(f.manifest, r, &tails[i], got, want, fl.tries, size, modTime)
		if failure == nil {
			continue
		}
		if failed == nil {
			failed = make(failures, len(fl.reads))
		}
		failed[i] = failure
	}
	return failed
}
