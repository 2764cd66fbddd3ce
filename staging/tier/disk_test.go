package tier

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
)

// memoryFile is a file in memory that fails as its fields say.
type memoryFile struct {
	mu     sync.Mutex
	b      []byte
	fail   error         // of reads and writes
	rot    bool          // reads return other bytes
	stall  chan struct{} // reads and writes wait until it is closed; nil: they do not
	busy   chan struct{} // receives when one begins to wait
	closed bool
}

func (f *memoryFile) Create(_ string, sizeBytes int64) (File, error) {
	f.b = make([]byte, sizeBytes)
	return f, nil
}

func (f *memoryFile) transfer(p []byte, off int64, do func(file []byte)) (int, error) {
	f.mu.Lock()
	stall, busy := f.stall, f.busy
	f.mu.Unlock()
	if stall != nil {
		busy <- struct{}{}
		<-stall
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return 0, f.fail
	}
	do(f.b[off : off+int64(len(p))])
	return len(p), nil
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	return f.transfer(p, off, func(file []byte) {
		copy(p, file)
		if f.rot {
			p[len(p)/2] ^= 4
		}
	})
}

func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	return f.transfer(p, off, func(file []byte) { copy(file, p) })
}

func (f *memoryFile) Forget(int64, int64) {}

func (f *memoryFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *memoryFile) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// clock makes time-outs expire when a test calls timeOut.
type clock struct {
	mu  sync.Mutex
	due map[int]func()
	n   int
}

func (c *clock) after(_ time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	n := c.n
	if c.due == nil {
		c.due = map[int]func(){}
	}
	c.due[n] = f
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, ok := c.due[n]
		delete(c.due, n)
		return ok
	}
}

// timeOut makes everything that is under way time out.
func (c *clock) timeOut() {
	c.mu.Lock()
	due := c.due
	c.due = nil
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

// sample is made-up content of any size.
func sample(id draw.SampleID, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(int(id)*31 + i*7 + i>>8)
	}
	return b
}

func open(t testing.TB, sizeBytes int64) (*Disk, *memoryFile, *clock) {
	t.Helper()
	f, c := &memoryFile{}, &clock{}
	d, err := Open("nowhere", Options{
		SizeBytes: sizeBytes, BlockBytes: 512, FileSystem: f,
		After: c.after,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.set(func() {
			if f.stall != nil {
				close(f.stall)
				f.stall = nil
			}
		})
		d.End()
		d.work.all.Wait()
	})
	return d, f, c
}

// store and recall wait for the result.
func (d *Disk) store(id draw.SampleID, b []byte) error {
	result := make(chan error)
	if !d.Store(id, b, func(err error) { result <- err }) {
		return errors.New("refused")
	}
	return <-result
}

func (d *Disk) recall(id draw.SampleID, size int) ([]byte, error) {
	into, result := make([]byte, size), make(chan error)
	d.Recall(id, into, 0, func(err error) { result <- err })
	return into, <-result
}

// used is the number of blocks that are not free.
func (d *Disk) used() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int(d.opt.SizeBytes/d.opt.BlockBytes) - d.blocks.left
}

// TestDiskGivesBackWhatWasStored compares the disk with a map, with samples of all sizes that come
// and go.
func TestDiskGivesBackWhatWasStored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d, _, _ := open(t, 64*512)
		held := map[draw.SampleID]int{}
		blocks := func(size int) int { return (size + 511) / 512 }
		used := 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			id := draw.SampleID(rapid.IntRange(0, 30).Draw(rt, "id"))
			size, in := held[id]
			switch {
			case !in:
				size = rapid.IntRange(0, 9000).Draw(rt, "size")
				err := d.store(id, sample(id, size))
				if (err == nil) != (used+blocks(size) <= 64) {
					rt.Fatalf("%d bytes with %d blocks in use: %v", size, used, err)
				}
				if err == nil {
					held[id], used = size, used+blocks(size)
				}
			case rapid.Bool().Draw(rt, "erase"):
				d.Erase(id)
				used -= blocks(size)
				delete(held, id)
				if _, err := d.recall(id, size); !errors.Is(err, errAbsent) {
					rt.Fatalf("an erased sample: %v", err)
				}
			default:
				if b, err := d.recall(id, size); err != nil || !bytes.Equal(b, sample(id, size)) {
					rt.Fatalf("sample %d of %d bytes: %v", id, size, err)
				}
			}
			if d.used() != used {
				rt.Fatalf("%d blocks in use, want %d", d.used(), used)
			}
		}
	})
}

func TestDiskThatFails(t *testing.T) {
	d, f, _ := open(t, 64*512)
	for id := range draw.SampleID(3) {
		if err := d.store(id, sample(id, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	f.set(func() { f.fail = syscall.EIO })
	if _, err := d.recall(0, 1000); !errors.Is(err, syscall.EIO) ||
		!strings.HasPrefix(err.Error(), "tier: ") {
		t.Errorf("a read that fails: %v", err)
	}
	if err := d.store(3, sample(3, 1000)); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write that fails: %v", err)
	}
	f.set(func() { f.fail, f.rot = nil, true })
	if b, err := d.recall(1, 1000); !errors.Is(err, errChanged) ||
		!bytes.Equal(b, make([]byte, 1000)) {
		t.Errorf("other bytes than were written: %v", err)
	}
	f.set(func() { f.rot = false })
	if b, err := d.recall(1, 1000); err != nil || !bytes.Equal(b, sample(1, 1000)) {
		t.Errorf("after the faults: %v", err)
	}
	if _, err := d.recall(3, 1000); !errors.Is(err, errAbsent) {
		t.Errorf("a sample that was not written: %v", err)
	}
	if d.used() != 3*2 {
		t.Errorf("%d blocks are in use, want 6", d.used())
	}
}

// TestDiskThatHangs checks that requests that hang are abandoned, do not touch memory later, and do
// not block other reads.
func TestDiskThatHangs(t *testing.T) {
	d, f, c := open(t, 64*512)
	if err := d.store(1, sample(1, 1000)); err != nil {
		t.Fatal(err)
	}
	stall := make(chan struct{})
	f.set(func() { f.stall, f.busy = stall, make(chan struct{}) })
	into, results := make([]byte, 1000), make(chan error)
	for range readers {
		d.Recall(1, into, 0, func(err error) { results <- err })
		<-f.busy
	}
	written := sample(2, 1000)
	if !d.Store(2, written, func(err error) { results <- err }) {
		t.Fatal("refused")
	}
	<-f.busy
	go c.timeOut()
	for range readers + 1 {
		if err := <-results; !errors.Is(err, ErrSlow) {
			t.Errorf("a request that hangs: %v", err)
		}
	}
	f.set(func() { f.stall = nil })
	if b, err := d.recall(1, 1000); err != nil || !bytes.Equal(b, sample(1, 1000)) {
		t.Errorf("a read beside those that hang: %v", err)
	}
	d.Erase(1)
	clear(written)
	if n := d.used(); n != 4 {
		t.Errorf("%d blocks in use, want the 4 that hanging requests may still read and write", n)
	}
	close(stall)
	for d.used() != 0 { // as soon as the file lets go
		if err := d.store(3, sample(3, 1000)); err != nil {
			t.Fatal(err)
		}
		d.Erase(3)
	}
	if !bytes.Equal(into, make([]byte, 1000)) {
		t.Error("a read that was given up has changed memory")
	}
	if _, err := d.recall(2, 1000); !errors.Is(err, errAbsent) {
		t.Errorf("a write that was given up: %v", err)
	}
}

// TestDiskRefusesWhatItCannotWriteInTime checks the bound of the queue.
func TestDiskRefusesWhatItCannotWriteInTime(t *testing.T) {
	d, f, _ := open(t, 1<<20)
	f.set(func() { f.stall, f.busy = make(chan struct{}), make(chan struct{}) })
	b := sample(0, 10)
	taken := 0
	for id := range draw.SampleID(writers) {
		if !d.Store(id, b, func(error) {}) {
			t.Fatal("refused while a writer is free")
		}
		<-f.busy
	}
	for id := range draw.SampleID(2 * queuedWrites) {
		if d.Store(100+id, b, func(error) {}) {
			taken++
		}
	}
	if taken != queuedWrites {
		t.Errorf("%d writes wait, want %d", taken, queuedWrites)
	}
}

// TestDiskReadsInOrderOfNeed leaves one reader, and checks the order in which it reads.
func TestDiskReadsInOrderOfNeed(t *testing.T) {
	d, f, _ := open(t, 1<<20)
	for id := range draw.SampleID(4) {
		if err := d.store(id, sample(id, 600)); err != nil {
			t.Fatal(err)
		}
	}
	stall := make(chan struct{})
	f.set(func() { f.stall, f.busy = stall, make(chan struct{}) })
	for range readers {
		d.Recall(0, make([]byte, 600), 0, func(error) {})
		<-f.busy
	}
	order := make(chan int)
	for _, need := range []int{3, 1, 2} {
		d.Recall(draw.SampleID(need), make([]byte, 600), uint64(need), func(error) { order <- need })
	}
	next := make(chan struct{})
	f.set(func() { f.stall = next })
	go func() { stall <- struct{}{} }() // lets one of the readers go, and only that
	got := []int{}
	for len(got) < 3 {
		select {
		case n := <-order:
			got = append(got, n)
		case <-f.busy:
			go func() { next <- struct{}{} }()
		}
	}
	close(stall)
	f.set(func() { f.stall = nil })
	if fmt.Sprint(got) != "[1 2 3]" {
		t.Errorf("read in the order %v", got)
	}
}

// TestDiskEnds checks that all requests under way, and all later ones, end with an error.
func TestDiskEnds(t *testing.T) {
	d, f, _ := open(t, 1<<20)
	if err := d.store(1, sample(1, 600)); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.stall, f.busy = make(chan struct{}), make(chan struct{}, 100) })
	results := make(chan error)
	for range 2 * readers {
		d.Recall(1, make([]byte, 600), 0, func(err error) { results <- err })
	}
	for id := range draw.SampleID(2 * writers) {
		d.Store(10+id, sample(id, 600), func(err error) { results <- err })
	}
	d.End()
	for range 2*readers + 2*writers {
		if err := <-results; !errors.Is(err, ErrEnded) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := d.recall(1, 600); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
	if d.Store(2, nil, func(error) {}) {
		t.Error("a disk that has ended takes a sample")
	}
}

// brokenFileSystem fails to make a file, or makes one that does not work.
type brokenFileSystem struct {
	err  error
	file *memoryFile
}

func (b brokenFileSystem) Create(dir string, sizeBytes int64) (File, error) {
	if b.err != nil {
		return nil, b.err
	}
	return b.file.Create(dir, sizeBytes)
}

func TestOpenChecks(t *testing.T) {
	broken := &memoryFile{fail: syscall.EIO}
	rotten := &memoryFile{rot: true}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		sizeBytes int64
		fs        FileSystem
		want      string
	}{
		{"read-only", dir, 1 << 20, brokenFileSystem{err: syscall.EROFS}, "tier: read-only file system"},
		{"I/O error", dir, 1 << 20, brokenFileSystem{file: broken}, "tier: input/output error"},
		{"other bytes", dir, 1 << 20, brokenFileSystem{file: rotten}, "the bytes read differ"},
		{"missing", filepath.Join(dir, "missing"), 1 << 20, nil, "missing: no such file or directory"},
		{"no folder", file, 1 << 20, nil, "not a directory"},
		{"too large", dir, 1 << 55, nil, " free, but the tier is to have 32 PiB"},
		{"no block", dir, 100, nil, "cannot divide 100 bytes"},
	} {
		block := BlockBytes(c.sizeBytes, 100)
		for c.sizeBytes/block > maxBlocks {
			block *= 2
		}
		_, err := Open(c.dir, Options{SizeBytes: c.sizeBytes, BlockBytes: block, FileSystem: c.fs})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if !broken.closed || !rotten.closed {
		t.Error("a file that does not work stays open")
	}
}

// TestOpenDoesNotWaitForEver opens a folder that does not answer.
func TestOpenDoesNotWaitForEver(t *testing.T) {
	f := &memoryFile{stall: make(chan struct{}), busy: make(chan struct{})}
	c := &clock{}
	go func() {
		<-f.busy
		c.timeOut()
	}()
	_, err := Open("nowhere", Options{
		SizeBytes: 1 << 20, BlockBytes: 512, FileSystem: f,
		After: c.after,
	})
	if err == nil || !strings.Contains(err.Error(), "nowhere does not answer") {
		t.Errorf("got %v", err)
	}
	close(f.stall)
}

// TestSystemFileSystem stores in a real folder. The file is invisible there, and files left by
// earlier ranks are removed.
func TestSystemFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".rankpool-tier-123"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "of others"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir, Options{SizeBytes: 1 << 20, BlockBytes: 512})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.store(1, sample(1, 100_000)); err != nil {
		t.Fatal(err)
	}
	if b, err := d.recall(1, 100_000); err != nil || !bytes.Equal(b, sample(1, 100_000)) {
		t.Errorf("%v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "of others" {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	d.End()
	d.work.all.Wait()
}

func TestBlockBytes(t *testing.T) {
	for _, c := range []struct{ size, mean, want int64 }{
		{1 << 30, 784, 512},
		{1 << 40, 110_000, 4096},
		{1 << 40, 16 << 20, 64 << 10},
		{1 << 40, 100, 4096},
		{1 << 20, 0, 512},
	} {
		if got := BlockBytes(c.size, c.mean); got != c.want || c.size/got > maxBlocks {
			t.Errorf("%d bytes with samples of %d: blocks of %d, want %d", c.size, c.mean, got, c.want)
		}
	}
}
