package rank

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/slurm"
)

// A rank that is started again under running training finds trainers that still map the memory of the one before, until they have noticed
// that it is gone, and that may have grown meanwhile. It must not take so much that the job is killed for it.

const (
	// roomPatience is how long such a rank waits for its memory. Trainers notice at their next batch.
	roomPatience = 30 * time.Second
	roomLook     = 100 * time.Millisecond
	// leastAgain is what a rank takes at any rate, if it had so much: a window.
	leastAgain = memory.UsualWindowBytes
)

// memoryName is a file in the rank's folder: the size that its slab has, and what it was asked for.
const memoryName = "memory"

// A memoryNote is what the file says.
type memoryNote struct {
	slabBytes int64  // now
	asked     string // a rank that is asked for something else begins anew
}

func readMemoryNote(folder string) (n memoryNote, err error) {
	text, err := os.ReadFile(filepath.Join(folder, memoryName))
	if err != nil {
		return n, err
	}
	number, asked, _ := strings.Cut(string(text), " ")
	n.asked = asked
	n.slabBytes, err = strconv.ParseInt(number, 10, 64)
	return n, err
}

// write replaces the note at once, since the rank may be killed at any time.
func (n memoryNote) write(folder string) error {
	fresh := filepath.Join(folder, memoryName+".new")
	if err := os.WriteFile(fresh, fmt.Appendf(nil, "%d %s", n.slabBytes, n.asked), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(folder, memoryName))
}

// noteSlab keeps the size that the slab has now.
func (r *process) noteSlab(slabBytes int64) {
	if r.noted.slabBytes == slabBytes {
		return
	}
	r.noted.slabBytes = slabBytes
	if err := r.noted.write(r.dir); err != nil {
		r.logger.Warn("the size of the cache was not noted", "error", err)
	}
}

// slabBefore returns the size that this rank's slab had before the rank was started again, if it was asked for the same then.
func (r *process) slabBefore(asked string) (slabBytes int64, again bool) {
	n, err := readMemoryNote(r.dir)
	return n.slabBytes, err == nil && n.asked == asked && n.slabBytes > 0
}

// slabAgain waits until there is room for the slabs of all ranks here that are started again, and returns what this one may take, of
// the size before. None of them takes anything before all ranks have said what they will.
func (r *process) slabAgain(ctx context.Context, beforeBytes int64) (int64, error) {
	all := int64(0)
	for _, folder := range session.RankFolders(r.opt.Session) {
		if n, err := readMemoryNote(folder); err == nil {
			all += n.slabBytes
		}
	}
	all = max(all, beforeBytes)
	room, err := r.awaitRoom(ctx, all)
	if err != nil || room >= all {
		return beforeBytes, err
	}
	slab := int64(float64(max(0, room)) / float64(all) * float64(beforeBytes))
	slab = max(slab, min(beforeBytes, leastAgain))
	r.logger.Warn("the node has less memory than before: the cache comes back smaller", "slab before", memory.Text(beforeBytes), "slab now", memory.Text(slab))
	return slab, nil
}

// awaitRoom waits until so many bytes and the reserve are free, but not for ever, and returns what is free but for the reserve.
func (r *process) awaitRoom(ctx context.Context, bytes int64) (int64, error) {
	look := time.NewTicker(roomLook)
	defer look.Stop()
	over := time.After(r.roomPatience)
	free := r.readMemory()
	if room := free.FreeBytes - reserveOf(free); room < bytes {
		notice(r.logger, "waiting for memory that training holds of the cache before, or has taken", "needed", memory.Text(bytes+reserveOf(free)),
			"free", memory.Text(free.FreeBytes), "limit", free.Limit)
	}
	for {
		if room := free.FreeBytes - reserveOf(free); room >= bytes {
			return room, nil
		}
		select {
		case <-look.C:
			free = r.readMemory()
		case <-over:
			free = r.readMemory()
			return free.FreeBytes - reserveOf(free), nil
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for memory: %w", context.Cause(ctx))
		}
	}
}

// room is mpicache.Config.Room: the slab itself is no part of what Slurm's number is compared with, since that is not there yet.
func (r *process) room() int64 { return slurm.ReadMemory(r.readFile, os.Getenv, 0).FreeBytes }
