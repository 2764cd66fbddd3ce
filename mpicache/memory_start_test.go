package mpicache

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/door"
	"rankpool/mpicache/slab"
)

const recoverPatience = 20 * time.Second

// killed ends the nodes of a cluster as a signal does, and returns the descriptors of their memory
// that clients have.
func (c *cluster) killed() (fds []int) {
	c.t.Helper()
	for _, n := range c.nodes {
		n.rank.Keep()
		fd, err := n.slab.ReadOnlyFD()
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = unix.Close(fd) })
		fds = append(fds, fd)
	}
	c.kill()
	return fds
}

// again restarts the ranks of a cluster in their folders; clients hand back the memory that they
// have.
func (c *cluster) again(
	t *testing.T, fds []int, samples int, capacityBytes int64, edits ...func(*Config),
) *cluster {
	t.Helper()
	dirs := slices.Clone(c.dirs)
	next := func() string {
		dir := dirs[0]
		dirs = dirs[1:]
		return dir
	}
	brought := fds
	edits = append(edits, func(cfg *Config) {
		dir, fd := cfg.Dir, brought[0]
		brought = brought[1:]
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		whenDoorOpens(ctx, t, dir, func() { _ = handBack(dir, fd) }) // a memory may be refused
		cfg.Memory = TakeBack(ctx, dir, cfg.Data, recoverPatience, cfg.Log)
	})
	return newClusterIn(t, next, len(c.dirs), samples, capacityBytes, edits...)
}

// handBack sends the rank with this folder the memory that a client has of the one before. It
// returns an error if no rank looks for it.
func handBack(dir string, slabFD int) error {
	addr := &net.UnixAddr{Name: filepath.Join(dir, backDoorName), Net: "unix"}
	there, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		return fmt.Errorf("mpicache: %w", err)
	}
	defer func() { _ = there.Close() }() // what was sent is on its way
	if _, err := door.PeerOf(there); err != nil {
		return err
	}
	_, _, err = there.WriteMsgUnix([]byte(backDoorMagic), unix.UnixRights(slabFD), nil)
	return err
}

// whenDoorOpens calls do when a rank opens its back door in a folder, unless ctx ends before.
func whenDoorOpens(ctx context.Context, t *testing.T, dir string, do func()) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	// its mode is set when it listens
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_ATTRIB); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	go func() {
		defer stop()
		text := make([]byte, 4096)
		for {
			n, err := events.Read(text)
			if err != nil {
				return // ctx has ended
			}
			if bytes.Contains(text[:n], []byte(backDoorName)) {
				_ = events.Close()
				do()
				return
			}
		}
	}()
}

func (c *cluster) residents() (n int64) {
	for _, node := range c.nodes {
		n += node.Stats().Residents
	}
	return n
}

// TestRecover kills all ranks, three times: what was resident is served again, and storage is read
// for the rest.
func TestRecover(t *testing.T) {
	const samples, capacity = 240, 6000
	for _, sampler := range []string{"torch", "pads"} {
		cl := newCluster(t, 2, samples, capacity)
		want := cl.train(2, 6, 2, sampler)
		cold := int64(cl.allReads())
		for range 3 {
			before := cl.residents()
			if before < 40 {
				t.Fatalf("%s: only %d residents", sampler, before)
			}
			last := cl
			cl = cl.again(t, cl.killed(), samples, capacity)
			for rank, n := range cl.nodes {
				is, _ := n.slab.Identity()
				was, _ := last.nodes[rank].slab.Identity()
				if is != was {
					t.Errorf("%s: rank %d has other memory than before", sampler, rank)
				}
				now := n.Stats()
				if now.Kept != now.KeptOf || now.Kept != last.nodes[rank].Stats().Residents {
					t.Errorf("%s: rank %d kept %d of %d", sampler, rank, now.Kept, now.KeptOf)
				}
			}
			if got := cl.train(2, 6, 2, sampler); !slices.Equal(got, want) {
				t.Errorf("%s: the stream differs", sampler)
			}
			reads := int64(cl.allReads())
			spared := before * 9 / 10
			if sampler == "pads" {
				spared = before / 4 // some are not drawn so soon
			}
			if reads > cold-spared {
				t.Errorf("%s: %d reads of storage with %d residents, %d with none",
					sampler, reads, before, cold)
			}
		}
		cl.close()
	}
}

// TestTakeBackRefuses makes clients send what is not the memory of the rank before.
func TestTakeBackRefuses(t *testing.T) {
	const samples, capacity = 240, 6000
	cl := newCluster(t, 1, samples, capacity)
	cl.train(1, 6, 1, "torch")
	fds, dir, data := cl.killed(), cl.dirs[0], cl.nodes[0].cfg.Data
	other, err := slab.New(1<<20, slabSets(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	otherFD, _ := other.ReadOnlyFD()
	defer unix.Close(otherFD)
	log := slog.New(slog.DiscardHandler)
	taken, opened := make(chan *slab.Slab), make(chan struct{})
	whenDoorOpens(t.Context(), t, dir, func() { close(opened) })
	go func() { taken <- TakeBack(t.Context(), dir, data, recoverPatience, log) }()
	<-opened
	if err := handBack(dir, otherFD); err != nil {
		t.Fatal(err)
	}
	garbage, err := net.Dial("unix", filepath.Join(dir, backDoorName))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = garbage.Write([]byte("something else"))
	silent, err := net.Dial("unix", filepath.Join(dir, backDoorName))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := handBack(dir, fds[0]); err != nil {
		t.Fatal(err)
	}
	memory := <-taken
	if memory == nil {
		t.Fatal("the memory was not taken back")
	}
	_ = memory.Close()
	if handBack(dir, fds[0]) == nil {
		t.Error("the back door stays open")
	}

	changed := slices.Clone(data)
	changed[0].Times = "other files"
	whenDoorOpens(t.Context(), t, dir, func() { _ = handBack(dir, fds[0]) })
	// it does not wait for other memory
	if TakeBack(t.Context(), dir, changed, time.Hour, log) != nil {
		t.Error("the memory was taken back for files of other times")
	}
	if note, err := readSlabNote(dir); err == nil && note.SizeBytes != 0 {
		t.Errorf("clients keep memory that no rank takes back: %+v", note)
	}
	if err := noteSlab(dir, cl.nodes[0].slab); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "trainers")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		what string
		told bool
	}{{"no process holds the memory", true}, {"the rank held no memory", false}} {
		var logged bytes.Buffer
		log := slog.New(slog.NewTextHandler(&logged, nil))
		if TakeBack(t.Context(), dir, data, recoverPatience, log) != nil {
			t.Errorf("memory was taken back, and %s", want.what)
		}
		if told := strings.Contains(logged.String(), "no training process of this node runs"); told !=
			want.told {
			t.Errorf("when %s, it is logged: %q", want.what, logged.String())
		}
	}
}

// TestTakeBackWaitsForViews lets scripts use the memory in place: a rank takes it over when the
// last script has released it. A script that locks the old file afterwards sees that another file
// is there.
func TestTakeBackWaitsForViews(t *testing.T) {
	const samples, capacity = 240, 6000
	cl := newCluster(t, 1, samples, capacity)
	cl.train(1, 6, 1, "torch")
	fds, dir, data := cl.killed(), cl.dirs[0], cl.nodes[0].cfg.Data
	log := slog.New(slog.DiscardHandler)
	inPlace := filepath.Join(dir, inPlaceName)
	lock := func() (file, forked *os.File) {
		file, err := os.OpenFile(inPlace, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(file.Fd())) // as a forked child has it
		if err != nil {
			t.Fatal(err)
		}
		return file, os.NewFile(uintptr(fd), inPlace)
	}
	file, forked := lock()
	other, another := lock()
	_ = file.Close()
	_, _ = other.Close(), another.Close() // this process let go, or died
	ended, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	whenDoorOpens(ended, t, dir, func() { _ = handBack(dir, fds[0]) })
	if TakeBack(ended, dir, data, recoverPatience, log) != nil {
		t.Error("memory was taken back that a script uses in place")
	}
	if err := noteSlab(dir, cl.nodes[0].slab); err != nil {
		t.Fatal(err)
	}
	whenDoorOpens(t.Context(), t, dir, func() {
		if err := handBack(dir, fds[0]); err != nil {
			t.Error(err)
		}
		_ = forked.Close()
	})
	late, err := os.OpenFile(inPlace, os.O_RDWR, 0) // by a client that has not locked it yet
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	memory := TakeBack(t.Context(), dir, data, recoverPatience, log)
	if memory == nil {
		t.Fatal("the memory was not taken back when no script used it in place any more")
	}
	_ = memory.Close()
	was, err := late.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(inPlace); err != nil || os.SameFile(was, is) {
		t.Errorf("a script that locks the old file does not see that it is too late (%v)", err)
	}
	whenDoorOpens(t.Context(), t, dir, func() { _ = handBack(dir, fds[0]) })
	if err := os.Remove(inPlace); err != nil {
		t.Fatal(err)
	}
	if TakeBack(t.Context(), dir, data, recoverPatience, log) != nil {
		t.Error("memory was taken back, and who uses it in place is not known")
	}
}

// TestColdStartForgets starts a rank with new memory: clients see that theirs is another.
func TestColdStartForgets(t *testing.T) {
	cl := newCluster(t, 1, 24, 6000)
	first, err := readSlabNote(cl.dirs[0])
	if is, _ := cl.nodes[0].slab.Identity(); err != nil || first != is {
		t.Errorf("the folder names %+v (%v), and the memory is %+v", first, err, is)
	}
	cl.killed()
	cl = newClusterIn(t, func() string { return cl.dirs[0] }, 1, 24, 6000)
	if second, err := readSlabNote(cl.dirs[0]); err != nil || second == first {
		t.Errorf("the folder names %+v (%v), before %+v", second, err, first)
	}
	cl.close()
}
