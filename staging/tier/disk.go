package tier

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler/draw"
)

const (
	// queuedWrites is how many samples may wait to be written; further ones are refused.
	queuedWrites = 256
	// openTimeout bounds how long an unresponsive folder delays the start.
	openTimeout = 30 * time.Second
)

var (
	errAbsent  = errors.New("tier: the sample is not in it")
	errChanged = errors.New("tier: the bytes read differ from those written")
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
	work *Workers
	end  sync.Once

	mu      sync.Mutex
	blocks  *blocks
	records map[draw.SampleID]*record
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
	full := func(writes int, _ int64) bool { return writes >= queuedWrites }
	return &Disk{
		opt: opt, file: file, records: map[draw.SampleID]*record{},
		blocks: newBlocks(int(opt.SizeBytes / opt.BlockBytes)), work: NewWorkers(full, opt.After),
	}, nil
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
	extents, ok := d.blocks.take(int((int64(len(bytes)) + d.opt.BlockBytes - 1) / d.opt.BlockBytes))
	if !ok {
		return false
	}
	r := &record{extents: extents, users: 1}
	taken := d.work.Add(&Request{
		Write: true, Memory: bytes,
		Do: func(buffer []byte) error { return d.release(r, true, d.write(r, buffer)) },
		Done: func(err error) {
			if err != nil {
				d.forget(id, r)
			}
			done(err)
		},
	})
	if !taken {
		d.blocks.give(extents)
		return false
	}
	d.drop(id)
	d.records[id] = r
	return true
}

// Recall reads a sample into into, which must have its size and belongs to the Disk until done is
// called. Smaller needs are read first. After an error into is unchanged.
func (d *Disk) Recall(id draw.SampleID, into []byte, need uint64, done func(error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.records[id]
	if r == nil || !r.whole {
		go done(errAbsent)
		return
	}
	r.users++
	if !d.work.Add(&Request{
		Need: need, Memory: into, Done: done,
		Do: func(buffer []byte) error { return d.release(r, false, d.read(r, buffer)) },
	}) {
		go done(ErrEnded)
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
	d.end.Do(func() {
		d.work.Close(0)
		go func() {
			_ = d.file.Close() // a file that cannot be closed goes with the process
		}()
	})
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

// release ends a request's use of its record, and returns its error.
func (d *Disk) release(r *record, wrote bool, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.users--
	r.whole = r.whole || wrote && err == nil
	d.giveBack(r)
	return err
}

// forget drops a sample that could not be written.
func (d *Disk) forget(id draw.SampleID, r *record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.records[id] == r {
		d.drop(id)
	}
}

func (d *Disk) write(r *record, buffer []byte) error {
	r.sum = xxh3.Hash(buffer)
	return d.each(r, buffer, d.file.WriteAt)
}

// read reads a sample, and verifies it.
func (d *Disk) read(r *record, buffer []byte) error {
	if err := d.each(r, buffer, d.file.ReadAt); err != nil {
		return err
	}
	if xxh3.Hash(buffer) != r.sum {
		return errChanged
	}
	return nil
}

// each reads or writes a sample piece by piece.
func (d *Disk) each(r *record, buffer []byte, transfer func([]byte, int64) (int, error)) error {
	for _, e := range r.extents {
		off := int64(e.start) * d.opt.BlockBytes
		piece := buffer[:min(int64(len(buffer)), int64(e.n)*d.opt.BlockBytes)]
		if _, err := transfer(piece, off); err != nil {
			return fmt.Errorf("tier: %w", err)
		}
		d.file.Forget(off, int64(len(piece)))
		buffer = buffer[len(piece):]
	}
	return nil
}
