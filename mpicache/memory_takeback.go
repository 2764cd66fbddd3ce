package mpicache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/door"
	"rankpool/mpicache/files"
	"rankpool/mpicache/slab"
	"rankpool/mpicache/training"
)

// The back door is a socket in a rank's folder that exists while a restarted rank looks for its
// predecessor's memory. A client that has the memory sends its descriptor, and gets no reply: the
// rank verifies the memory itself.

// backDoorName is the socket's name in the rank's folder.
const backDoorName = "slab.sock"

// inPlaceName is the file in the rank's folder on which a client holds a shared lock while a script
// holds views of the memory. A rank that took the memory back would overwrite them; the client
// rereads samples that it is decoding itself. Each rank creates a new file before its door opens,
// so a lock on an old file has no effect.
const inPlaceName = "in-place"

// handsPatience is how long a rank waits for scripts to release its memory. A script that makes a
// checkpoint may hold a batch, and waits ten seconds for the rank to save the scores.
const handsPatience = 3 * time.Second

// lockEvery is the time between two attempts to lock that file.
const lockEvery = 10 * time.Millisecond

// backDoorMagic is what a client sends, with the descriptor.
const backDoorMagic = "rpslab01"

// backDoorPatience is how long a client may take to send that.
const backDoorPatience = 5 * time.Second

// TakeBack returns the memory of the previous rank with this folder, if a training process has it
// and sends it within patience and before ctx ends. Otherwise it returns nil and removes the
// memory's name from the folder, so that clients release it. The memory returned is the one that
// the folder names, and holds samples of these data sets.
func TakeBack(
	ctx context.Context, dir string, data []DataSet, patience time.Duration, log *slog.Logger,
) (memory *slab.Slab) {
	defer func() {
		if memory == nil {
			forgetSlab(dir)
		}
	}()
	want, err := readSlabNote(dir)
	if err != nil || want.SizeBytes == 0 {
		return nil
	}
	if !training.HeldByTrainers(dir) {
		log.Warn("no training process of this node runs, to send the previous rank's memory: the " +
			"cache starts empty")
		return nil
	}
	path := filepath.Join(dir, backDoorName)
	_ = os.Remove(path) // a rank that died here has left it
	door, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		log.Warn("the previous rank's memory cannot be taken over", "error", err)
		return nil
	}
	defer func() { _ = door.Close() }() // removes it
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = door.Close() })() // it may be closed already
	for memory == nil {
		client, err := door.AcceptUnix()
		if err != nil {
			log.Warn("no training process sent the previous rank's memory: the cache starts empty")
			return nil
		}
		memory, err = takeFrom(client, want, slabSets(data))
		if err != nil {
			log.Warn("a client sent memory that is not this rank's previous memory", "error", err)
		}
		if errors.Is(err, slab.ErrOther) { // no process has another one
			return nil
		}
	}
	if err := takeFromHands(ctx, dir); err != nil {
		log.Warn("scripts may use samples in place: the previous rank's memory is not taken over",
			"error", err)
		_ = memory.Close() // it is the clients'
		return nil
	}
	return memory
}

// takeFromHands waits until no script uses the previous rank's memory in place, and prevents new
// uses.
func takeFromHands(ctx context.Context, dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, inPlaceName), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("mpicache: %w", err) // the lock's holder is unknown
	}
	defer func() { _ = file.Close() }() // it was only locked
	ctx, cancel := context.WithTimeout(ctx, handsPatience)
	defer cancel()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return renewInPlace(dir)
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return fmt.Errorf("mpicache: %s: %w", file.Name(), err)
		}
		select {
		case <-time.After(lockEvery):
		case <-ctx.Done():
			return fmt.Errorf("mpicache: %s is locked", file.Name())
		}
	}
}

// renewInPlace replaces the file that clients of the previous rank may lock.
func renewInPlace(dir string) error {
	return files.Write(filepath.Join(dir, inPlaceName), nil)
}

// takeFrom receives the memory from a client.
func takeFrom(client *net.UnixConn, want slab.Identity, sets []slab.Set) (*slab.Slab, error) {
	defer func() { _ = client.Close() }() // it was read
	if _, err := door.PeerOf(client); err != nil {
		return nil, err
	}
	if err := client.SetReadDeadline(time.Now().Add(backDoorPatience)); err != nil {
		return nil, err
	}
	fd, err := readDescriptor(client)
	if err != nil {
		return nil, fmt.Errorf("mpicache: the back door: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // the slab has one of its own
	return slab.Take(fd, want, sets)
}

// readDescriptor returns the one descriptor that comes with the magic.
func readDescriptor(client *net.UnixConn) (int, error) {
	text, oob := make([]byte, len(backDoorMagic)), make([]byte, unix.CmsgSpace(4*16))
	n, oobn, _, _, err := client.ReadMsgUnix(text, oob)
	if err != nil {
		return -1, err
	}
	var fds []int
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for i := range messages {
			more, _ := unix.ParseUnixRights(&messages[i]) // of another kind: none
			fds = append(fds, more...)
		}
	}
	if len(fds) == 1 && string(text[:n]) == backDoorMagic {
		return fds[0], nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return -1, errors.New("a client sent something else")
}
