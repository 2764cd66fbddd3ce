package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rankpool/scheduler"
	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// BenchmarkFetch reads files of 110 KiB, in a new tree. TMPDIR should be a tmpfs, so that the
// benchmark measures the Fetcher. It requests 256 samples at a time.
func BenchmarkFetch(b *testing.B) {
	const files, sizeBytes = 500, 110 << 10
	root := b.TempDir()
	var names []string
	for i := range files {
		names = append(names, fmt.Sprint(i))
		stagingtest.Must(b, os.WriteFile(filepath.Join(root, names[i]), make([]byte, sizeBytes), 0o644))
	}
	benchmarkFetch(b, filesOf(b, root, names...))
}

func benchmarkFetch(b *testing.B, m *dataset.Manifest) {
	f := NewFetcher(m, FetchOptions{})
	defer f.Close()
	const ahead = 256
	slab := make([]byte, ahead*m.Size(0))
	places := make(chan int, ahead)
	for i := range ahead {
		places <- i
	}
	b.SetBytes(m.Size(0))
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		place, id := <-places, scheduler.SampleID(n%uint64(m.Len()))
		size := m.Size(id)
		f.Fetch(id, slab[int64(place)*size:][:size], n, func(err error) {
			if err != nil {
				b.Error(err)
			}
			places <- place
		})
		n++
	}
	for range ahead {
		<-places
	}
	b.ReportMetric(float64(f.Stats().Concurrency), "requests")
}
