package storage

import (
	"errors"
	"io"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// directAlign is the alignment of offsets, sizes and memory for O_DIRECT: the page size, the
	// largest that Linux file systems need if pages have 4 KiB.
	directAlign = 4096

	// directPieceBytes bounds one request, so that a buffer stays small.
	directPieceBytes = 4 << 20
)

// DirectStorage reads with O_DIRECT, bypassing the page cache, and falls back to SystemStorage's
// reads if the file system refuses it. It reads whole pages into its own memory and copies the
// requested bytes. On Lustre this is often slower: measure before you use it.
type DirectStorage struct{}

// Open opens the file at path for reading.
func (DirectStorage) Open(path string) (File, error) {
	fd, err := openFile(path, unix.O_DIRECT)
	if errors.Is(err, unix.EINVAL) {
		return SystemStorage{}.Open(path)
	}
	if err != nil {
		return nil, err
	}
	return &directFile{systemFile: systemFile(fd), pread: unix.Pread}, nil
}

// A directFile is a file that is open with O_DIRECT.
type directFile struct {
	systemFile
	refused atomic.Bool // the file system accepted the flag and then refused to read
	pread   func(fd int, p []byte, off int64) (int, error)
}

// ReadVector implements File, with its own memory between storage and the buffers.
func (f *directFile) ReadVector(into [][]byte, off int64) (n int, err error) {
	if f.refused.Load() {
		return f.systemFile.ReadVector(into, off)
	}
	total := int64(0)
	for _, p := range into {
		total += int64(len(p))
	}
	from := off &^ (directAlign - 1)
	size := (min(off-from+total, directPieceBytes) + directAlign - 1) &^ (directAlign - 1)
	buffer, pages := alignedBuffer(int(size))
	defer buffers.put(buffer)
	n, err = readOnce(func() (int, error) { return f.pread(int(f.systemFile), pages, from) })
	switch {
	case errors.Is(err, unix.EINVAL):
		return f.readBuffered(into, off)
	case err != nil:
		return 0, err
	case int64(n) <= off-from:
		return 0, io.EOF
	}
	left := pages[off-from : min(int64(n), off-from+total)]
	n = len(left)
	for ; len(left) > 0; into = into[1:] {
		left = left[copy(into[0], left):]
	}
	return n, nil
}

// readBuffered clears O_DIRECT, and reads.
func (f *directFile) readBuffered(into [][]byte, off int64) (int, error) {
	flags, err := unix.FcntlInt(uintptr(f.systemFile), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(f.systemFile), unix.F_SETFL, flags&^unix.O_DIRECT)
	}
	if err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	f.refused.Store(true)
	return f.systemFile.ReadVector(into, off)
}

// alignedBuffer returns size bytes that start at a page boundary, and the buffer that contains
// them.
func alignedBuffer(size int) (buffer, pages []byte) {
	buffer = buffers.get(size + directAlign)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(buffer))) & (directAlign - 1))
	return buffer, buffer[skip : skip+size]
}

// buffers are read buffers, in sizes of powers of two. They are reused, but the collector may free
// them.
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

// put returns a buffer from get, or nil, to the pool.
func (p *bufferPools) put(buffer []byte) {
	if cap(buffer) > 0 {
		p[bits.Len(uint(cap(buffer)-1))].Put(&buffer)
	}
}
