package layout

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// beegfsFile is a file over targets in chunks of 512 KiB.
func beegfsFile(targets ...uint32) fakeFile {
	info := make([]byte, stripeInfoBytes)
	binary.NativeEndian.PutUint32(info, 1) // RAID0
	binary.NativeEndian.PutUint32(info[4:], 512<<10)
	binary.NativeEndian.PutUint16(info[8:], uint16(len(targets)))
	return fakeFile{
		magic: posix.BeeGFSMagic, stripes: info,
		target: func(arg []byte) error {
			binary.NativeEndian.PutUint32(arg[4:], targets[binary.NativeEndian.Uint32(arg)])
			return nil
		},
	}
}

// The images in testdata are little-endian, as BeeGFS's machines are; the test needs such a machine
// too.
func TestBeeGFSGolden(t *testing.T) {
	file := fakeFile{
		magic: posix.BeeGFSMagic, stripes: golden(t, "beegfs_stripeinfo"),
		target: func(arg []byte) error {
			if place := binary.NativeEndian.Uint32(arg); place != 1 {
				binary.NativeEndian.PutUint32(arg[4:], 100+place)
				return nil
			}
			copy(arg, golden(t, "beegfs_stripetarget_v2"))
			return nil
		},
	}
	sys := newFake(map[string]fakeFile{"/b/x": file})
	got, err := of(sys, "/b/x", true)
	want := Layout{
		Components: []Component{{0, eof, 512 << 10, []int{100, 201, 102, 103}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if sys.opened != 0 {
		t.Errorf("%d files are still open", sys.opened)
	}
}

func TestOf(t *testing.T) {
	pattern := func(pattern, chunk, targets byte) fakeFile {
		f := beegfsFile(1, 2)
		f.stripes = []byte{pattern, 0, 0, 0, 0, 0, chunk, 0, targets, 0, 0, 0}
		return f
	}
	stub := fakeFile{magic: posix.BeeGFSMagic, openErr: unix.EWOULDBLOCK}
	failing := beegfsFile(1)
	failing.target = func([]byte) error { return unix.EIO }
	two := []Component{{0, eof, 512 << 10, []int{1, 2}}}
	for name, test := range map[string]struct {
		file fakeFile
		want Layout
		err  string
	}{
		"lustre": {
			file: lustreFile(7),
			want: Layout{
				Components: []Component{{0, eof, 1 << 20, []int{7}}},
			},
		},
		"lustre, empty": {file: fakeFile{magic: posix.LustreMagic}},
		"lustre, released": {file: released(), want: Layout{
			Offline: true,
		}},
		"lustre, nonsense": {
			file: fakeFile{magic: posix.LustreMagic, value: []byte("nonsense")},
			err:  "layout: /f: the layout has the unknown magic",
		},
		"no namespace":      {file: fakeFile{magic: unix.TMPFS_MAGIC}},
		"no such attribute": {file: fakeFile{magic: unix.NFS_SUPER_MAGIC, attrErr: unix.ENODATA}},
		"FUSE without":      {file: fakeFile{magic: unix.FUSE_SUPER_MAGIC, attrErr: unix.ENOSYS}},
		"attribute EIO": {
			file: fakeFile{attrErr: unix.EIO},
			err:  "layout: getxattr /f: input/output error",
		},
		"raid10": {
			file: pattern(2, 8, 2),
			want: Layout{Components: two},
		},
		"buddymirror": {
			file: pattern(3, 8, 2),
			want: Layout{Components: two},
		},
		"no chunk": {
			file: pattern(1, 0, 2),
			err:  "layout: /f: impossible stripes: chunks of 0 bytes on 2 targets",
		},
		"no targets": {
			file: pattern(1, 8, 0),
			err:  "layout: /f: impossible stripes: chunks of 524288 bytes on 0 targets",
		},
		"stub": {file: stub, want: Layout{Offline: true}},
		"not to be read": {
			file: fakeFile{magic: posix.BeeGFSMagic, openErr: unix.EACCES},
			err:  "layout: open /f: permission denied",
		},
		"BeeGFS without": {file: fakeFile{magic: posix.BeeGFSMagic}},
		"target fails":   {file: failing, err: "layout: /f: its target 0: input/output error"},
		"no targets known": {
			file: fakeFile{magic: posix.BeeGFSMagic, stripes: pattern(1, 8, 1).stripes},
			err:  "layout: /f: its target 0: inappropriate ioctl",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys := newFake(map[string]fakeFile{"/f": test.file})
			got, err := of(sys, "/f", onBeeGFS(sys, "/f"))
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if sys.opened != 0 {
				t.Errorf("%d files are still open", sys.opened)
			}
		})
	}
}

// On the file system of the test, neither Lustre nor BeeGFS, the real system calls find no layout.
func TestOfThisMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Of(path); err != nil || !reflect.DeepEqual(l, Layout{}) {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := Of(path + "y"); !errors.Is(err, os.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "layout: ") {
		t.Errorf("a file that is not there: %v", err)
	}
	// The ioctls of BeeGFS reach the kernel, and another file system answers that it does not know
	// them.
	if l, err := readBeeGFS(systemCalls{}, path); err != nil || !reflect.DeepEqual(l, Layout{}) {
		t.Errorf("%+v, %v", l, err)
	}
}

// The numbers of the requests, computed by a C compiler from the headers.
func TestRequestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want uint }{
		{requestStripeInfo, 0x800C6619},
		{requestStripeTarget, 0x8218661A},
	} {
		if test.got != test.want {
			t.Errorf("%#x, want %#x", test.got, test.want)
		}
	}
}

func FuzzBeeGFS(f *testing.F) {
	f.Add(golden(f, "beegfs_stripeinfo"), golden(f, "beegfs_stripetarget_v2"))
	f.Fuzz(func(t *testing.T, info, target []byte) {
		file := fakeFile{
			magic: posix.BeeGFSMagic, stripes: append(info, 0),
			target: func(arg []byte) error { copy(arg, target); return nil },
		}
		l, err := of(newFake(map[string]fakeFile{"/f": file}), "/f", true)
		if err == nil {
			checkLayout(t, l, 1<<20)
		}
	})
}
