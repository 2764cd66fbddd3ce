package layout

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/posix"
)

// golden returns the bytes of testdata/name.hex: hexadecimal digits, and comments from # on.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	value, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// fakeFile is what a fake file system answers for one file.
type fakeFile struct {
	value   []byte // of lustre.lov; nil: attrErr
	attrErr error  // nil: ENODATA on Lustre, EOPNOTSUPP elsewhere
	magic   int64
	openErr error
	stripes []byte                 // of GET_STRIPEINFO; nil: ENOTTY
	target  func(arg []byte) error // of GET_STRIPETARGET
}

// fakeSystem is a file system with files by path, which counts its calls.
type fakeSystem struct {
	files map[string]fakeFile

	mu     sync.Mutex
	calls  map[string]int
	opened int
}

func newFake(files map[string]fakeFile) *fakeSystem {
	return &fakeSystem{files: files, calls: map[string]int{}}
}

func (s *fakeSystem) count(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
}

func (s *fakeSystem) getxattr(path, name string) ([]byte, error) {
	s.count("getxattr " + path)
	f, found := s.files[path]
	switch {
	case name != lovAttribute:
		return nil, errors.New("asked for " + name)
	case !found:
		return nil, &os.PathError{Op: "getxattr", Path: path, Err: unix.ENOENT}
	case f.value != nil:
		return f.value, nil
	case f.attrErr != nil:
		return nil, &os.PathError{Op: "getxattr", Path: path, Err: f.attrErr}
	case f.magic == posix.LustreMagic:
		return nil, &os.PathError{Op: "getxattr", Path: path, Err: unix.ENODATA}
	}
	return nil, &os.PathError{Op: "getxattr", Path: path, Err: unix.EOPNOTSUPP}
}

func (s *fakeSystem) magic(path string) int64 {
	s.count("statfs")
	return s.files[path].magic
}

func (s *fakeSystem) open(path string) (device, error) {
	s.count("open")
	f, found := s.files[path]
	switch {
	case !found:
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	case f.openErr != nil:
		return nil, &os.PathError{Op: "open", Path: path, Err: f.openErr}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	return fakeDevice{s, f}, nil
}

type fakeDevice struct {
	system *fakeSystem
	file   fakeFile
}

func (d fakeDevice) ioctl(request uint, arg []byte) error {
	// A request's number holds the size of its argument: the kernel writes that many bytes.
	if size := int(request >> 16 & 0x3FFF); size != len(arg) {
		panic("the argument has another size than the request says")
	}
	switch {
	case request == requestStripeInfo && d.file.stripes != nil:
		copy(arg, d.file.stripes)
		return nil
	case request == requestStripeTarget && d.file.target != nil:
		return d.file.target(arg)
	}
	return unix.ENOTTY
}

func (d fakeDevice) Close() {
	d.system.mu.Lock()
	defer d.system.mu.Unlock()
	d.system.opened--
}

// A sample belongs to a fake data set.
type sample struct {
	path         string
	offset, size int64
}

type dataSet []sample

func (d dataSet) Len() int                      { return len(d) }
func (d dataSet) Path(id draw.SampleID) string  { return d[id].path }
func (d dataSet) Offset(id draw.SampleID) int64 { return d[id].offset }
func (d dataSet) Size(id draw.SampleID) int64   { return d[id].size }

// plainValue returns the attribute of a V1 layout.
func plainValue(pattern, stripeBytes uint32, targets ...uint32) []byte {
	value := binary.LittleEndian.AppendUint32(nil, magicV1)
	value = binary.LittleEndian.AppendUint32(value, pattern)
	value = append(value, make([]byte, 16)...)
	value = binary.LittleEndian.AppendUint32(value, stripeBytes)
	value = binary.LittleEndian.AppendUint16(value, uint16(len(targets)))
	value = append(value, 0, 0)
	for _, target := range targets {
		value = append(value, make([]byte, 20)...)
		value = binary.LittleEndian.AppendUint32(value, target)
	}
	return value
}

func lustreFile(targets ...uint32) fakeFile {
	return fakeFile{magic: posix.LustreMagic, value: plainValue(1, 1<<20, targets...)}
}

func released() fakeFile {
	return fakeFile{magic: posix.LustreMagic, value: plainValue(patternReleased|1, 1<<20)}
}
