package record

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"rankpool/scheduler"
)

// Recorder writes a rank's decisions to its file, from a separate goroutine. It never delays the
// rank: if the file cannot be written as fast as records come, or at all, the recording ends there,
// which is logged and noted in the file. All its methods, and those of its tapes, may be called
// concurrently.
type Recorder struct {
	out   io.WriteCloser
	log   *slog.Logger
	bound int // of bytes that wait; those being written are not included, and have the same bound

	wake chan struct{}
	done chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	pending *bytes.Buffer // the gob stream of the entries that wait
	gob     *gob.Encoder  // to pending
	over    bool          // no more entries are accepted
	why     string        // it is over; "": the rank has ended
}

const (
	// pendingBytes bounds the memory of a recording: a minute at 1 MiB/s, which is several times
	// the rate of one rank.
	pendingBytes = 64 << 20
	// chunkBytes is the size of a write. Beyond 256 KiB gzip gains nothing.
	chunkBytes = 256 << 10
	// flushEvery is how much of its recording a killed rank loses.
	flushEvery = time.Second
	// closePatience bounds how long a rank that ends waits for storage to accept the recording's
	// end.
	closePatience = 5 * time.Second
)

// Create opens the file of begin's rank, see Path. A file of another session is overwritten; in a
// file of the same session, in which the rank lived before, the recording continues. It returns an
// error if the file cannot be written, or holds something else.
func Create(path string, begin Begin, log *slog.Logger) (*Recorder, error) {
	path = Path(path, begin.Rank)
	f, err := openFile(path, begin)
	if err != nil {
		return nil, fmt.Errorf("record: %s: %w", path, err)
	}
	return newRecorder(f, begin, log, pendingBytes), nil
}

func newRecorder(out io.WriteCloser, begin Begin, log *slog.Logger, bound int) *Recorder {
	r := &Recorder{
		out: out, log: log, bound: bound, wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	r.restart(new(bytes.Buffer))
	r.add(&entry{Begin: &begin})
	go r.write()
	return r
}

// Close writes the entries that wait, and the end. It waits for storage, but not for long.
func (r *Recorder) Close() error {
	r.stop("")
	select {
	case <-r.done:
		return nil
	case <-time.After(closePatience):
		return errors.New("record: storage does not take the end of the recording")
	}
}

// stop ends the recording; the first reason counts.
func (r *Recorder) stop(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopLocked(why)
}

func (r *Recorder) stopLocked(why string) {
	if r.over {
		return
	}
	r.over, r.why = true, why
	if why != "" {
		r.log.Warn("the recording ends here, training continues", "reason", why)
	}
	r.kick()
}

func (r *Recorder) kick() {
	select {
	case r.wake <- struct{}{}:
	default: // it has been woken
	}
}

// restart begins a gob stream, in memory that was in use before. Each chunk has its own stream, so
// that it can be read without earlier chunks.
func (r *Recorder) restart(pending *bytes.Buffer) {
	pending.Reset()
	r.pending, r.gob = pending, gob.NewEncoder(pending)
}

// add adds an entry, unless the recording is over.
func (r *Recorder) add(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.pending.Len() > r.bound { // an entry itself may be larger: the scores of all samples
		r.stopLocked("storage takes it more slowly than it comes")
		return
	}
	r.encode(e)
	if r.pending.Len() >= chunkBytes {
		r.kick()
	}
}

func (r *Recorder) encode(e *entry) {
	if err := r.gob.Encode(e); err != nil {
		panic(fmt.Sprintf("record: an entry cannot be written: %v", err)) // its types are ours
	}
}

// write is the writer's goroutine.
func (r *Recorder) write() {
	defer close(r.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic("record: gzip does not know its own level: " + err.Error())
	}
	var chunk bytes.Buffer
	spare := new(bytes.Buffer)
	for {
		select {
		case <-tick.C:
		case <-r.wake:
		}
		entries, last := r.take(spare)
		if entries.Len() > 0 {
			chunk.Reset()
			appendChunk(&chunk, zip, entries.Bytes())
			_, err = r.out.Write(chunk.Bytes())
		}
		if last {
			err = errors.Join(err, r.out.Close())
		}
		if err != nil {
			r.stop(fmt.Sprintf("it cannot be written: %v", err))
			_ = r.out.Close() // the error before is reported
			return
		}
		if last {
			return
		}
		if spare = entries; spare.Cap() > 4*chunkBytes { // after a burst
			spare = new(bytes.Buffer)
		}
	}
}

// take returns the entries that wait, and whether they are the last. Those to come go into spare.
func (r *Recorder) take(spare *bytes.Buffer) (entries *bytes.Buffer, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		r.encode(&entry{End: &end{r.why}})
	}
	entries = r.pending
	r.restart(spare)
	return entries, r.over
}

// Tape is the part of a recording that is about one data set. All methods of a nil Tape do nothing.
// Events must be recorded in order, so a Tape must not be used concurrently.
type Tape struct {
	r      *Recorder
	stream int
	told   bool // the scores of all samples were recorded
}

// Tape begins the record of a data set; stream is its number on this rank. r may be nil.
func (r *Recorder) Tape(stream int, setup *Setup) *Tape {
	if r == nil {
		return nil
	}
	sizes := SizesOf(setup.Sampler.Samples, setup.Size)
	r.add(&entry{Stream: stream, Setup: setup, Sizes: sizes})
	return &Tape{r: r, stream: stream}
}

// Base records the scores from which the next Planned's plan was made; nil if the sampler does not
// use any.
func (t *Tape) Base(scores []float32) {
	if t == nil || scores == nil {
		return
	}
	t.r.add(&entry{Stream: t.stream, Base: scores})
}

// Cuts records the scores of the epochs before the next Planned, if a system chooses by them but
// has not made its choices for these epochs here.
func (t *Tape) Cuts(cuts []scheduler.Cut) {
	if t != nil && len(cuts) > 0 {
		t.r.add(&entry{Stream: t.stream, Cuts: cuts})
	}
}

// Learned records what the next Planned's plan is made from besides scores, nil for nothing.
func (t *Tape) Learned(learned scheduler.Learned) {
	if t != nil && learned != nil {
		t.r.add(&entry{Stream: t.stream, Learned: learned()})
	}
}

// Step records an event and the commands that followed from it.
func (t *Tape) Step(e scheduler.Event, commands []scheduler.Command) {
	if t == nil {
		return
	}
	whole := false
	if scored, is := e.(scheduler.Scored); is {
		whole = len(scored.IDs) == 0 || !t.told
		t.told = true
	}
	told := make([]any, len(commands))
	for i, c := range commands {
		told[i] = portable(c, false)
	}
	t.r.add(&entry{Stream: t.stream, Event: portable(e, whole), Commands: told})
}
