package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"rankpool/staging/stagingtest"
)

// TestDirectStorage reads ranges anywhere in a file, bypassing the page cache if the test's file
// system allows that.
func TestDirectStorage(t *testing.T) {
	data := make([]byte, directPieceBytes+3*directAlign+7)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	path := filepath.Join(t.TempDir(), "f")
	stagingtest.Must(t, os.WriteFile(path, data, 0o644))
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint("refused ", refused), func(t *testing.T) {
			file, err := DirectStorage{}.Open(path)
			stagingtest.Must(t, err)
			defer file.Close()
			if direct, ok := file.(*directFile); ok && refused {
				direct.pread = func(int, []byte, int64) (int, error) { return 0, unix.EINVAL }
			}
			for _, size := range []int{
				1, directAlign - 1, directAlign, directAlign + 1, 3 * directAlign,
				len(data),
			} {
				for _, offset := range []int{0, 1, directAlign - 1, directAlign, len(data) - size} {
					got := make([]byte, size)
					n, err := ReadFull(file, got, int64(offset))
					want := data[offset:min(len(data), offset+size)]
					if err != nil || n != len(want) || !bytes.Equal(got[:n], want) {
						t.Fatalf("%d bytes at %d: %d, %v", size, offset, n, err)
					}
				}
			}
			if n, err := file.ReadAt(make([]byte, 5), int64(len(data))); n != 0 ||
				!errors.Is(err, io.EOF) {
				t.Errorf("at the end: %d, %v", n, err)
			}
			a, b := make([]byte, 10), make([]byte, 9000)
			n, err := file.(vectorReader).ReadVector([][]byte{a, b}, 4000)
			if err != nil || n != 9010 || !bytes.Equal(a, data[4000:4010]) ||
				!bytes.Equal(b, data[4010:13010]) {
				t.Errorf("a vector: %d, %v", n, err)
			}
			if size, _, err := file.Stat(); err != nil || size != int64(len(data)) {
				t.Errorf("it has %d bytes, %v", size, err)
			}
		})
	}
	if _, err := (DirectStorage{}).Open(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestAlignedBuffer(t *testing.T) {
	for range 20 {
		buffer, pages := alignedBuffer(directAlign)
		if at := uintptr(unsafe.Pointer(&pages[0])); at%directAlign != 0 ||
			len(pages) != directAlign {
			t.Errorf("%d bytes at %x", len(pages), at)
		}
		buffers.put(buffer[:1])
	}
}
