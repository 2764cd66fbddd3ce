package rank

import (
	"os"
	"runtime"
	"runtime/debug"
)

// A rank's heap is a few large arrays without pointers: memory costs more than collecting. But a
// small one is collected seldom, since each collection takes its time from serving.
const (
	smallHeapBytes = 16 << 20 // a heap is not collected before it is as large as this
	garbageBytes   = 2 << 20  // roughly how much garbage a larger heap may hold before a collection
	goHeapBytes    = 4 << 20  // a heap that Go does not collect at 100 %; in proportion at others
)

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

// collectAt returns the garbage that may accumulate, in percent of the memory in use. A twentieth
// of a large heap may be garbage.
func collectAt(usedBytes uint64) (percent int) {
	used := int64(max(usedBytes, 1))
	most := int64(smallHeapBytes * 100 / goHeapBytes)
	return int(min(max(max(garbageBytes, smallHeapBytes-used)*100/used, 5), most))
}
