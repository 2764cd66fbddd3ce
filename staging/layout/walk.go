package layout

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"rankpool/scheduler"
	"rankpool/staging/posix"
)

// concurrency is how many layouts are read at a time: as many as a scan has
// requests in flight, since each is a request to the metadata server if the client does not have
// the file's attributes yet.
const concurrency = 16

const (
	// spread is the number of files, evenly spread over the data set, that determine its file systems.
	spread = 64
	// chunkSamples is how many samples a goroutine processes at a time: some milliseconds of work on a
	// local file system.
	chunkSamples = 1024
)

// Samples is a data set: N samples, each a range of a file. The layout of a file is read once for
// its consecutive samples. *dataset.Manifest implements it. It is safe for concurrent use.
type Samples interface {
	Len() int
	// Path returns the absolute path of the file that holds sample id.
	Path(id scheduler.SampleID) string
	// Offset returns where in its file sample id starts, in bytes.
	Offset(id scheduler.SampleID) int64
	// Size returns the size of sample id in bytes.
	Size(id scheduler.SampleID) int64
}

// A file is one file of a data set: the samples [first, end), and the file's layout or the error of
// reading it.
type file struct {
	first, end scheduler.SampleID
	layout     Layout
	err        error
}

// A walk reads the layouts of all files of a data set.
type walk struct {
	sys       system
	samples   Samples
	askBeeGFS func(system, string) (bool, error)
	next      atomic.Int64 // the next chunk
}

// walkFiles calls visit for every file of the data set, from several goroutines at a time. Before
// that it examines a spread of 64 files; if none of them has a layout it returns false and visits
// no file.
//
// Errors: ctx's end, as its cause. A file whose layout cannot be read is visited with its error.
func walkFiles(ctx context.Context, sys system, samples Samples, visit func(file)) (
	found bool, err error,
) {
	lustre, beegfs := fileSystems(ctx, sys, samples)
	if !lustre && !beegfs || ctx.Err() != nil {
		return false, endOf(ctx)
	}
	w := &walk{sys: sys, samples: samples}
	// Asking statfs for every file would cost BeeGFS another request; the ioctl of a file that is not
	// on it fails.
	w.askBeeGFS = func(system, string) (bool, error) { return beegfs, nil }
	var running sync.WaitGroup
	for range min(concurrency, w.chunks()) {
		running.Go(func() {
			for ctx.Err() == nil {
				chunk := int(w.next.Add(1) - 1)
				if chunk >= w.chunks() {
					return
				}
				w.visitChunk(ctx, chunk, visit)
			}
		})
	}
	running.Wait()
	return true, endOf(ctx)
}

func (w *walk) chunks() int { return (w.samples.Len() + chunkSamples - 1) / chunkSamples }

// visitChunk visits the files that start in a chunk of samples; the last may extend beyond it.
func (w *walk) visitChunk(ctx context.Context, chunk int, visit func(file)) {
	n := w.samples.Len()
	begin := scheduler.SampleID(chunk * chunkSamples)
	end := scheduler.SampleID(min((chunk+1)*chunkSamples, n))
	at := begin
	if begin > 0 { // the file of the sample before started in an earlier chunk
		at = w.endOfFile(begin, end, w.samples.Path(begin-1))
	}
	for at < end && ctx.Err() == nil {
		path := w.samples.Path(at)
		f := file{first: at, end: w.endOfFile(at+1, scheduler.SampleID(n), path)}
		f.layout, f.err = of(w.sys, path, w.askBeeGFS)
		visit(f)
		at = f.end
	}
}

// endOfFile returns the first sample in [at, end) that is not in the file at path, else end.
func (w *walk) endOfFile(at, end scheduler.SampleID, path string) scheduler.SampleID {
	for at < end && w.samples.Path(at) == path {
		at++
	}
	return at
}

// fileSystems reports which of Lustre and BeeGFS hold any of a spread of the data set's files.
func fileSystems(ctx context.Context, sys system, samples Samples) (lustre, beegfs bool) {
	n := samples.Len()
	for i := range min(n, spread) {
		if ctx.Err() != nil {
			break
		}
		path := samples.Path(scheduler.SampleID(i * n / min(n, spread)))
		switch magic, _ := sys.magic(path); magic { // ignore a missing file; others count
		case posix.BeeGFSMagic:
			beegfs = true
		case posix.LustreMagic:
			lustre = true
		default: // an overlay that passes the attribute through
			l, _ := of(sys, path, onBeeGFS)
			lustre = lustre || l.FileSystem == Lustre
		}
	}
	return lustre, beegfs
}

func endOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("layout: %w", context.Cause(ctx))
}
