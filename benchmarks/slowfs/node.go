package slowfs

import (
	"context"
	"encoding/json"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is a file or folder of the source, served late.
type node struct {
	source
	server *Server
}

// source is what a fs.LoopbackNode does for a reader.
type source interface {
	fs.InodeEmbedder
	fs.NodeLookuper
	fs.NodeGetattrer
	fs.NodeOpener
	fs.NodeReadlinker
	fs.NodeGetxattrer
	fs.NodeListxattrer
	fs.NodeStatfser
}

// WrapChild turns the nodes that LoopbackNode makes into ours, and leaves the statistics as they
// are.
func (n *node) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	if below, ok := child.(*fs.LoopbackNode); ok {
		return &node{source: below, server: n.server}
	}
	return child
}

// name returns the path below the root.
func (n *node) name() string {
	inode := n.EmbeddedInode()
	return inode.Path(inode.Root())
}

// statsFolder is in the root but not listed, so that copies of the tree do not include it.
const statsFolder = ".slowfs"

// OnAdd adds the statistics when the root is mounted.
func (n *node) OnAdd(ctx context.Context) {
	root := n.EmbeddedInode()
	if !root.IsRoot() {
		return
	}
	folder := root.NewPersistentInode(ctx, &fs.Inode{}, fs.StableAttr{Mode: syscall.S_IFDIR})
	root.AddChild(statsFolder, folder, false)
	folder.AddChild("stats", folder.NewPersistentInode(
		ctx, &statsFile{engine: n.server.engine}, fs.StableAttr{Mode: syscall.S_IFREG}), false)
}

// Lookup finds a name in a folder.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (
	*fs.Inode, syscall.Errno,
) {
	inode := n.EmbeddedInode()
	if name == statsFolder && inode.IsRoot() {
		out.Mode = 0o555
		return inode.GetChild(statsFolder), fs.OK
	}
	path := name
	if !inode.IsRoot() {
		path = n.name() + "/" + name
	}
	if err := n.server.wait(n.server.engine.Stat(n.server.now(), path)); err != nil {
		return nil, fs.ToErrno(err)
	}
	return n.source.Lookup(ctx, name, out)
}

// Getattr reads the attributes of the node, or of one of its open files.
func (n *node) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if err := n.server.wait(n.server.engine.Stat(n.server.now(), n.name())); err != nil {
		return fs.ToErrno(err)
	}
	return n.source.Getattr(ctx, f, out)
}

// Statx is not implemented, so that the kernel calls Getattr and a program's statx costs the same.
func (n *node) Statx(context.Context, fs.FileHandle, uint32, uint32, *fuse.StatxOut) syscall.Errno {
	return syscall.ENOSYS
}

// Open opens a file.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	name := n.name()
	if err := n.server.wait(n.server.engine.Open(n.server.now(), name)); err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	below, _, errno := n.source.Open(ctx, flags)
	if errno != fs.OK {
		return nil, 0, errno
	}
	mode := uint32(fuse.FOPEN_NOFLUSH)
	switch {
	case !n.server.config.PageCache:
		mode |= fuse.FOPEN_DIRECT_IO
	case n.server.config.KeepCache:
		// Otherwise the kernel forgets a file's pages when it is opened again.
		mode |= fuse.FOPEN_KEEP_CACHE
	}
	return &file{LoopbackFile: below.(*fs.LoopbackFile), server: n.server, name: name}, mode, fs.OK
}

// file is an open file.
type file struct {
	*fs.LoopbackFile
	server *Server
	name   string
}

// PassthroughFd keeps the kernel from reading the source file directly.
func (f *file) PassthroughFd() (int, bool) { return 0, false }

// Read reads up to len(dest) bytes at an offset.
func (f *file) Read(ctx context.Context, dest []byte, offset int64) (
	fuse.ReadResult, syscall.Errno,
) {
	var attr fuse.AttrOut
	if errno := f.Getattr(ctx, &attr); errno != fs.OK {
		return nil, errno
	}
	size := min(int64(len(dest)), int64(attr.Size)-offset)
	if err := f.server.wait(f.server.engine.Read(f.server.now(), f.name, offset, size)); err != nil {
		return nil, fs.ToErrno(err)
	}
	return f.LoopbackFile.Read(ctx, dest, offset)
}

// OpendirHandle opens a folder.
func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fd, err := unix.Open(n.server.source+"/"+n.name(),
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	below, errno := fs.NewLoopbackDirStreamFd(fd)
	if errno != fs.OK {
		return nil, 0, errno
	}
	return &folder{below: below.(dirStream), server: n.server, name: n.name()}, 0, fs.OK
}

// dirStream is what fs.NewLoopbackDirStreamFd returns.
type dirStream interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
}

// folder is an open folder, read by one request at a time.
type folder struct {
	below  dirStream
	server *Server
	name   string
	due    time.Duration // when the entries read so far are to be answered
}

// leastSleep is the shortest time that Go can sleep; shorter latencies of entries add up to it.
const leastSleep = time.Millisecond

// Readdirent reads an entry. It returns nil at the end.
func (d *folder) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	entry, errno := d.below.Readdirent(ctx)
	now := d.server.now()
	if errno == fs.OK && entry != nil {
		v := d.server.engine.List(now, d.name, 1)
		d.due = max(d.due, now) + v.Due - now
		if v.Err != 0 {
			return nil, fs.ToErrno(d.server.wait(Verdict{d.due, v.Err}))
		}
	}
	if entry == nil || d.due-now >= leastSleep {
		if err := d.server.wait(Verdict{Due: d.due}); err != nil {
			return nil, fs.ToErrno(err)
		}
	}
	return entry, errno
}

// Seekdir goes to an offset that an entry had.
func (d *folder) Seekdir(ctx context.Context, offset uint64) syscall.Errno {
	return d.below.Seekdir(ctx, offset)
}

// Releasedir closes the folder.
func (d *folder) Releasedir(ctx context.Context, flags uint32) { d.below.Releasedir(ctx, flags) }

// statsFile is Stats as JSON, as of when it is opened.
type statsFile struct {
	fs.Inode
	engine *Engine
}

// Getattr lets everyone read it. Its size is unknown until it is opened.
func (*statsFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = 0o444
	return fs.OK
}

// Open reads the counts.
func (s *statsFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	text, err := json.MarshalIndent(s.engine.Stats(), "", " ")
	if err != nil {
		return nil, 0, syscall.EIO
	}
	return statsText(text), fuse.FOPEN_DIRECT_IO, fs.OK
}

// statsText is an open statsFile.
type statsText []byte

// Read reads up to len(dest) bytes at an offset.
func (s statsText) Read(_ context.Context, dest []byte, offset int64) (
	fuse.ReadResult, syscall.Errno,
) {
	from := min(offset, int64(len(s)))
	return fuse.ReadResultData(s[from:min(from+int64(len(dest)), int64(len(s)))]), fs.OK
}
