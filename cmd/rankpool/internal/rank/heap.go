package rank

import (
	"os"
	"runtime"
	"runtime/debug"
)

// garbageBytes is roughly how much garbage a rank's heap may hold before a collection. The heap is
// a few large arrays without pointers: memory costs more than collecting.
const garbageBytes = 2 << 20

// tidyHeap returns unused memory to the system, and sets how often garbage is collected, by the
// memory in use. It is called once an epoch, when that has changed.
func tidyHeap() {
	debug.FreeOSMemory()
	if os.Getenv("GOGC") != "" {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetGCPercent(collectAt(m.HeapAlloc))
}

// collectAt returns the garbage that may accumulate, in percent of the memory in use. A small heap
// is collected when it has doubled, since each collection costs some time; a twentieth of a large
// one may be garbage.
func collectAt(usedBytes uint64) (percent int) {
	return int(min(max(garbageBytes*100/max(usedBytes, 1), 5), 100))
}
