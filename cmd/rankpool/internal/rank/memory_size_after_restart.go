package rank

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
	"rankpool/mpicache/files"
	"rankpool/mpicache/slab"
	"rankpool/slurm"
)

// When a rank is restarted while training runs, trainers still map the memory of its predecessor
// until they notice that it is gone, and their own memory may have grown meanwhile. The rank must
// not use so much that the job is killed.

const (
	// roomPatience is how long such a rank waits for its memory. Trainers notice at their next
	// batch.
	roomPatience = 30 * time.Second
	roomLook     = 100 * time.Millisecond
	// backPatience is how long a rank waits for a training process to return the memory of the rank
	// before it. They look for it twice a second.
	backPatience = 10 * time.Second
	// leastAgain is the memory that a rank uses in any case, if it had that much: a window.
	leastAgain = memory.UsualWindowBytes
)

// A memoryUse is what the rank uses of its node's memory.
type memoryUse struct {
	opt       *Options
	folder    *ownFolder
	logger    *slog.Logger
	rank      int
	ranks     int
	ranksHere int // ranks on this machine

	readFile func(name string) ([]byte, error) // reads the kernel's files about memory
	patience time.Duration                     // how long it waits after a restart

	slab       *slab.Slab   // of the rank before this one; nil: the node allocates its own
	slabBytes  atomic.Int64 // of all ranks of this machine, now
	noted      int64        // the slab's size in the rank's folder; giveBack's once the node runs
	freeBefore int64        // at giveBack's last look
}

// memoryName is the file in the rank's folder that notes the size of its slab.
const memoryName = "memory"

// MemoryNoted returns the size of the slab that a rank has noted.
func MemoryNoted(folder string) (slabBytes int64, err error) {
	text, err := files.Read(filepath.Join(folder, memoryName))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

// hasMemoryNote reports whether a rank has planned its memory, which all do at the same time.
func hasMemoryNote(folder string) bool { return session.Exists(filepath.Join(folder, memoryName)) }

// noteMemory replaces the note atomically, since the rank may be killed at any time.
func noteMemory(folder string, slabBytes int64) error {
	return files.Write(filepath.Join(folder, memoryName), fmt.Append(nil, slabBytes))
}

// noteSlab records the current size of the slab.
func (m *memoryUse) noteSlab(slabBytes int64) {
	if m.noted == slabBytes {
		return
	}
	m.noted = slabBytes
	if err := noteMemory(m.folder.dir, slabBytes); err != nil {
		m.logger.Warn("the size of the cache was not noted", "error", err)
	}
}

// slabBefore returns the size of this rank's slab before the restart.
func (m *memoryUse) slabBefore() (slabBytes int64, again bool) {
	bytes, err := MemoryNoted(m.folder.dir)
	return bytes, err == nil && bytes > 0
}

// takeBack takes back the memory that the rank before this one left with training processes, and
// reports whether one of them returned it.
func (m *memoryUse) takeBack(ctx context.Context, data []mpicache.DataSet) bool {
	m.slab = mpicache.TakeBack(ctx, m.folder.dir, data, backPatience, m.logger)
	return m.slab != nil
}

// slabAgain waits until there is room for the slabs of all restarted ranks of this machine, and
// returns the memory that this rank may use, up to the size before. None of them allocates anything
// before all have announced their sizes.
func (m *memoryUse) slabAgain(ctx context.Context, beforeBytes int64) (int64, error) {
	all := int64(0)
	for _, folder := range session.RankFolders(m.opt.Session) {
		if bytes, err := MemoryNoted(folder); err == nil {
			all += bytes
		}
	}
	all = max(all, beforeBytes)
	room, err := m.awaitRoom(ctx, all)
	if err != nil || room >= all {
		return beforeBytes, err
	}
	slab := int64(float64(max(0, room)) / float64(all) * float64(beforeBytes))
	slab = max(slab, min(beforeBytes, leastAgain))
	m.logger.Warn("the node has less memory than before: the cache restarts with less memory",
		"slab before", memory.Text(beforeBytes), "slab now", memory.Text(slab))
	return slab, nil
}

// awaitRoom waits a limited time until the given bytes and the reserve are free, and returns the
// free memory minus the reserve.
func (m *memoryUse) awaitRoom(ctx context.Context, bytes int64) (int64, error) {
	look := time.NewTicker(roomLook)
	defer look.Stop()
	over, late := time.After(m.patience), false
	for told := false; ; told = true {
		free := m.readMemory()
		room := free.FreeBytes - reserveOf(free)
		if room >= bytes || late {
			return room, nil
		}
		if !told {
			messages.Notice(m.logger, "waiting for memory that training still maps from the previous "+
				"cache, or has allocated", "needed", memory.Text(bytes+reserveOf(free)),
				"free", memory.Text(free.FreeBytes), "limit", free.Limit)
		}
		select {
		case <-look.C:
		case <-over:
			late = true
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for memory: %w", context.Cause(ctx))
		}
	}
}

// room is mpicache.Config.Room: the slab itself is not part of what Slurm's number is compared
// with, since it does not exist yet.
func (m *memoryUse) room() int64 { return slurm.ReadMemory(m.readFile, os.Getenv, 0).FreeBytes }
