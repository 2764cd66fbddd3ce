package dataset

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openFile opens a file for reading; a pipe in its place, which nobody writes to, would block an
// os.Open.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// mapFile maps a file for reading, for the rest of the process's life. An empty file is nil.
func mapFile(path string) ([]byte, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the mapping stays
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	return unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
}

// takeColumn sets *column to the n little-endian integers at offset at of data, and returns the
// bytes they occupy there, up to the next column. If the processor is little-endian and they are
// aligned, as in a mapped file, *column shares data's memory. If data is too short, *column stays
// nil.
func takeColumn[T uint64 | uint32 | Format](column *[]T, data []byte, at, n uint64) uint64 {
	var one T
	width := uint64(unsafe.Sizeof(one))
	if at <= uint64(len(data)) && n*width <= uint64(len(data))-at && n > 0 {
		raw := data[at : at+n*width]
		first := unsafe.Pointer(unsafe.SliceData(raw))
		if littleEndian && uintptr(first)%unsafe.Alignof(one) == 0 {
			*column = unsafe.Slice((*T)(first), n)
		} else {
			*column = make([]T, n)
			_, _ = binary.Decode(raw, binary.LittleEndian, *column) // raw has the right length
		}
	}
	return align8(n * width)
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
