package rank

import (
	"os"
	"runtime"
	"runtime/debug"
)

// garbageBytes is how much garbage may lie in a rank's heap before it is collected, roughly. The
// heap is a few large arrays without pointers: memory is dearer than collecting.
const garbageBytes = 2 << 20

// tidyHeap gives memory that is not in use back to the system, and has garbage collected as often
// as what is in use asks for. It is called once an epoch, when that has changed.
func tidyHeap() {
	debug.FreeOSMemory()
	if os.Getenv("GOGC") != "" {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetGCPercent(collectAt(m.HeapAlloc))
}

// collectAt is the percentage of what is in use that may be garbage. A small heap is collected when
// it has doubled, since each collection costs some time; a twentieth of a large one may be garbage.
func collectAt(usedBytes uint64) (percent int) {
	return int(min(max(garbageBytes*100/max(usedBytes, 1), 5), 100))
}
