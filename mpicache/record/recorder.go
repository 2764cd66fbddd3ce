package record

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"rankpool/scheduler"
)

// Recorder writes what a rank decides to its file, from a goroutine of its own. It never holds up the rank: when the file
// cannot be written as fast as records come, or at all, the recording ends there, which is logged and told in the file. All
// its methods, and those of its tapes, may be called concurrently.
type Recorder struct {
	out   io.WriteCloser
	log   *slog.Logger
	bound int // of bytes that wait; what is being written comes on top of it, and is bounded alike

	wake chan struct{}
	done chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	pending []byte // records that wait
	spare   []byte
	over    bool   // no record is taken any more
	why     string // it is over; "": the rank has ended
}

const (
	// pendingBytes bounds the memory of a recording: a minute at 1 MiB/s, which is several times what one rank writes.
	pendingBytes = 64 << 20
	// chunkBytes is how much is written together. Beyond 256 KiB gzip gains nothing.
	chunkBytes = 256 << 10
	// flushEvery is how much a rank that is killed loses of its recording.
	flushEvery = time.Second
	// closePatience bounds how long the end of a rank waits for storage to take the recording's end.
	closePatience = 5 * time.Second
)

// Create opens the file of begin's rank, see Path. A file of another session is written over; in one of the same session, in
// which the rank lived before, the recording goes on. It returns an error when the file cannot be written, or holds something else.
func Create(path string, begin Begin, log *slog.Logger) (*Recorder, error) {
	path = Path(path, begin.Rank)
	f, err := openFile(path, begin)
	if err != nil {
		return nil, fmt.Errorf("record: %s: %w", path, err)
	}
	return newRecorder(f, begin, log, pendingBytes), nil
}

func newRecorder(out io.WriteCloser, begin Begin, log *slog.Logger, bound int) *Recorder {
	r := &Recorder{out: out, log: log, bound: bound, wake: make(chan struct{}, 1), done: make(chan struct{})}
	r.add(recordBegin, func(c *coder) { codeJSON(c, begin) })
	go r.write()
	return r
}

// Close writes what waits, and the end. It waits for storage, but not for long.
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
		r.log.Warn("the recording ends here, training goes on", "reason", why)
	}
	r.kick()
}

func (r *Recorder) kick() {
	select {
	case r.wake <- struct{}{}:
	default: // it has been woken
	}
}

// add takes a record, if the recording is not over.
func (r *Recorder) add(kind byte, code func(*coder)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if len(r.pending) > r.bound { // a record itself may be larger: the scores of all samples
		r.stopLocked("storage takes it more slowly than it comes")
		return
	}
	c := coder{b: append(r.pending, kind)}
	code(&c)
	r.pending = c.b
	if len(r.pending) >= chunkBytes {
		r.kick()
	}
}

// write is the writer's life.
func (r *Recorder) write() {
	defer close(r.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic("record: gzip does not know its own level: " + err.Error())
	}
	var chunk bytes.Buffer
	for {
		select {
		case <-tick.C:
		case <-r.wake:
		}
		records, last := r.take()
		if len(records) > 0 {
			chunk.Reset()
			appendChunk(&chunk, zip, records)
			_, err = r.out.Write(chunk.Bytes())
		}
		if last {
			err = errors.Join(err, r.out.Close())
		}
		if err != nil {
			r.stop(fmt.Sprintf("it cannot be written: %v", err))
			_ = r.out.Close() // the error before is being told
			return
		}
		if last {
			return
		}
		r.give(records)
	}
}

// take returns the records that wait, and whether they are the last.
func (r *Recorder) take() (records []byte, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	records, r.pending, r.spare = r.pending, r.spare[:0], nil
	if r.over {
		c := coder{b: append(records, recordEnd)}
		c.text(&r.why)
		records = c.b
	}
	return records, r.over
}

// give takes back the memory of records that are written, unless it is that of a burst.
func (r *Recorder) give(records []byte) {
	if cap(records) > 4*chunkBytes {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare = records
}

// Tape is the part of a recording that is about one data set. All methods of a nil Tape do nothing: nothing is recorded.
// Events must be told in order; so it must not be used concurrently.
type Tape struct {
	r      *Recorder
	stream int
	told   bool // the scores of all samples
}

// Tape begins the record of a data set; stream is its number on this rank. r may be nil.
func (r *Recorder) Tape(stream int, setup *Setup) *Tape {
	if r == nil {
		return nil
	}
	r.add(recordSetup, func(c *coder) {
		num(c, &stream)
		codeJSON(c, setup)
		sizes := setup.sizes()
		list(c, &sizes)
	})
	return &Tape{r: r, stream: stream}
}

// sizes returns the sizes of all samples; only one if they are equal.
func (s *Setup) sizes() []int64 {
	sizes, equal := make([]int64, s.Sampler.Samples), true
	for id := range sizes {
		sizes[id] = s.Size(scheduler.SampleID(id))
		equal = equal && sizes[id] == sizes[0]
	}
	if equal {
		return sizes[:1]
	}
	return sizes
}

// Base tells the scores that the next Planned's plan was made from; nil, when the sampler does not use any.
func (t *Tape) Base(scores []float32) {
	if t == nil || scores == nil {
		return
	}
	t.r.add(recordBase, func(c *coder) {
		num(c, &t.stream)
		c.f32s(&scores)
	})
}

// Step tells an event and the commands that came of it.
func (t *Tape) Step(e scheduler.Event, commands []scheduler.Command) {
	if t != nil {
		t.step(e, commands)
	}
}

func (t *Tape) step(e scheduler.Event, commands []scheduler.Command) {
	t.r.add(recordEvent, func(c *coder) {
		num(c, &t.stream)
		switch e := e.(type) {
		case scheduler.Planned:
			p := planned{Epoch: e.Plan.Epoch, From: e.From, Placed: e.Plan.Home != nil, Home: e.Plan.Home, Digest: digest(e.Plan)}
			put(c, kindPlanned, codePlanned, p)
		case scheduler.Scored:
			put(c, kindScored, codeScored, newScored(e, len(e.IDs) == 0 || !t.told))
			t.told = true
		default:
			writeEvent(c, e)
		}
		writeCommands(c, commands)
	})
}
