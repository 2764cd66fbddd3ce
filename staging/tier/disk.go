package tier

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"rankpool/scheduler/draw"
)

const (
	// readers is enough to keep a node-local NVMe device busy with samples of 100 KB: it has some 100
	// µs of latency and 3 to 7 GB/s.
	readers = 8
	// writers are fewer, so that writes do not delay reads, which somebody waits for.
	writers = 2
	// queuedWrites is how many samples may wait to be written; further ones are refused.
	queuedWrites = 256
	// readTimeout is as long as the timeout for another rank (--tune peer-timeout): after it, the
	// sample is read from storage.
	readTimeout = 2 * time.Second
	// writeTimeout is longer: a device that collects garbage stalls writes for a second or more, and
	// training does not wait for writes.
	writeTimeout = 10 * time.Second
	// openTimeout bounds how long an unresponsive folder delays the start.
	openTimeout = 30 * time.Second
)

var (
	errEnded   = errors.New("tier: abandoned after too many failures")
	errAbsent  = errors.New("tier: the sample is not in it")
	errChanged = errors.New("tier: the bytes read differ from those written")
	errSlow    = errors.New("tier: the disk does not answer in time")
)

// Options describes a Disk.
type Options struct {
	SizeBytes  int64
	BlockBytes int64 // samples occupy whole blocks; see BlockBytes
	// FileSystem creates the file; nil: SystemFileSystem.
	FileSystem FileSystem
	// After calls f after d, unless stop is called before; nil: time.AfterFunc.
	After func(d time.Duration, f func()) (stop func() bool)
}

// BlockBytes returns a block size for a disk of sizeBytes and samples of meanBytes: a power of two
// such that a sample occupies about sixteen blocks, and the half block lost per sample is 3 % of
// the disk.
func BlockBytes(sizeBytes, meanBytes int64) int64 {
	block := int64(512) // the smallest unit of a device
	for block < 64<<10 && 32*block <= meanBytes || sizeBytes/block > maxBlocks {
		block *= 2
	}
	return block
}

// A Disk holds samples in a file. Its methods may be called concurrently; they do not wait for the
// file, nor call done themselves: done is called exactly once, on another goroutine, and must not
// block for long.
type Disk struct {
	opt  Options
	file File

	mu      sync.Mutex
	wake    [2]sync.Cond  // by kind: a request is waiting, or the Disk has ended
	queue   [2][]*request // the least need first, equal ones in the order of the calls
	running map[*request]struct{}
	blocks  *blocks
	records map[draw.SampleID]*record
	ended   bool
	workers sync.WaitGroup
}

// record is a sample in the file.
type record struct {
	sum     uint64 // xxh3 of its bytes
	extents []extent
	users   int32 // requests in progress that read or write it
	whole   bool
	erased  bool
}

// Open creates a Disk in a folder. The caller must End it. It returns an error if the folder is not
// writable, lacks the space, or does not return what was written.
func Open(dir string, opt Options) (*Disk, error) {
	if opt.FileSystem == nil {
		opt.FileSystem = SystemFileSystem{}
	}
	if opt.After == nil {
		opt.After = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	if opt.BlockBytes < 1 || opt.SizeBytes < opt.BlockBytes ||
		opt.SizeBytes/opt.BlockBytes > maxBlocks {
		return nil, fmt.Errorf("tier: cannot divide %d bytes into blocks of %d", opt.SizeBytes,
			opt.BlockBytes)
	}
	file, err := create(dir, opt)
	if err != nil {
		return nil, fmt.Errorf("tier: %w", err)
	}
	d := &Disk{
		opt: opt, file: file, running: map[*request]struct{}{}, records: map[draw.SampleID]*record{},
		blocks: newBlocks(int(opt.SizeBytes / opt.BlockBytes)),
	}
	for kind, n := range map[kind]int{reading: readers, writing: writers} {
		d.wake[kind].L = &d.mu
		for range n {
			d.workers.Go(func() { d.work(kind) })
		}
	}
	return d, nil
}

// create creates and probes the file, with a time limit.
func create(dir string, opt Options) (File, error) {
	type result struct {
		file File
		err  error
	}
	results, late := make(chan result, 1), make(chan struct{})
	stop := opt.After(openTimeout, func() { close(late) })
	go func() {
		file, err := opt.FileSystem.Create(dir, opt.SizeBytes)
		if err == nil {
			if err = probe(file, opt); err != nil {
				err = errors.Join(err, file.Close())
			}
		}
		results <- result{file, err}
	}()
	select {
	case r := <-results:
		stop()
		return r.file, r.err
	case <-late:
		go func() {
			if r := <-results; r.err == nil {
				_ = r.file.Close() // it is empty
			}
		}()
		return nil, fmt.Errorf("%s does not answer", dir)
	}
}

// probe writes and reads the first and the last block.
func probe(file File, opt Options) error {
	out, in := make([]byte, opt.BlockBytes), make([]byte, opt.BlockBytes)
	for _, block := range []int64{0, opt.SizeBytes/opt.BlockBytes - 1} {
		for i := range out {
			out[i] = byte(int64(i) + block + 1)
		}
		if _, err := file.WriteAt(out, block*opt.BlockBytes); err != nil {
			return err
		}
		if _, err := file.ReadAt(in, block*opt.BlockBytes); err != nil {
			return err
		}
		if string(in) != string(out) {
			return errChanged
		}
	}
	return nil
}

// Store writes a sample that is not in the Disk. It returns false, and does nothing, if there is no
// room or too many writes wait already. The bytes must not change until done is called; if its
// error is nil, the sample is stored.
func (d *Disk) Store(id draw.SampleID, bytes []byte, done func(error)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || len(d.queue[writing]) >= queuedWrites {
		return false
	}
	extents, ok := d.blocks.take(int((int64(len(bytes)) + d.opt.BlockBytes - 1) / d.opt.BlockBytes))
	if !ok {
		return false
	}
	d.drop(id)
	r := &record{extents: extents}
	d.records[id] = r
	d.enqueue(&request{kind: writing, id: id, record: r, memory: bytes, done: done})
	return true
}

// Recall reads a sample into into, which must have its size and belongs to the Disk until done is
// called. Smaller needs are read first. After an error into is unchanged.
func (d *Disk) Recall(id draw.SampleID, into []byte, need uint64, done func(error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.records[id]
	switch {
	case d.ended:
		go done(errEnded)
	case r == nil || !r.whole:
		go done(errAbsent)
	default:
		d.enqueue(&request{kind: reading, id: id, record: r, memory: into, need: need, done: done})
	}
}

// Erase frees a sample's room. Reads and writes of it in progress continue to their end.
func (d *Disk) Erase(id draw.SampleID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(id)
}

// End closes the Disk and its file. Requests in progress, and later ones, end with an error. Ending
// again does nothing.
func (d *Disk) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.ended = true
	var over []*request
	for kind := range d.queue {
		over = append(over, d.queue[kind]...)
		d.queue[kind] = nil
		d.wake[kind].Broadcast()
	}
	for q := range d.running {
		over = append(over, q)
	}
	go func() {
		for _, q := range over {
			q.end(errEnded, nil)
		}
		_ = d.file.Close() // a file that cannot be closed goes with the process
	}()
}

// drop removes a sample. d.mu is held.
func (d *Disk) drop(id draw.SampleID) {
	if r := d.records[id]; r != nil {
		delete(d.records, id)
		r.erased = true
		d.giveBack(r)
	}
}

// giveBack frees the blocks of an erased record if nothing uses them any more. d.mu is held.
func (d *Disk) giveBack(r *record) {
	if r.erased && r.users == 0 {
		d.blocks.give(r.extents)
		r.extents = nil
	}
}

// enqueue passes a request to a worker. d.mu is held.
func (d *Disk) enqueue(q *request) {
	q.record.users++
	queue := d.queue[q.kind]
	at := sort.Search(len(queue), func(i int) bool { return queue[i].need > q.need })
	d.queue[q.kind] = slices.Insert(queue, at, q)
	d.wake[q.kind].Signal()
}
