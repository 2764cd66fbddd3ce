package scheduler

import (
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkHeld measures the records of a rank that holds all of its samples, and of one that holds
// half of them and has evicted the others; and a draw on each.
func BenchmarkHeld(b *testing.B) {
	const samples = 1_000_000
	for _, capacity := range []int64{samples, samples / 2} {
		b.Run(fmt.Sprint(capacity), func(b *testing.B) {
			use := func(i int) Use {
				id := SampleID(i * 7919 % samples)
				return Use{ID: id, Next: uniform(mix(uint64(i)))}
			}
			before := heapBytes()
			s := NewStager(StagerConfig{
				Ranks: 1, Samples: samples, Size: func(SampleID) int64 { return 1 },
				Policy: NewClairvoyant(), CapacityBytes: capacity,
			})
			cache := s.Cache()
			for i := range samples {
				u := use(i)
				cache.Draw(u, func(id SampleID) { s.copies.set(id, sampleCopy{}) })
				if cache.Resident(u.ID) {
					s.copies.set(u.ID, sampleCopy{state: here})
				}
			}
			held, bytes := cache.Len(), heapBytes()-before
			i := 0
			for b.Loop() {
				cache.Draw(use(i), nobody)
				i++
			}
			b.ReportMetric(float64(bytes)/float64(held), "B/held")
			runtime.KeepAlive(s)
		})
	}
}

// heapBytes returns how much of the heap is in use.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
