package staging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"rankpool/scheduler"
)

// synthetic returns a manifest like ImageNet's: classes folders with perClass files each, named
// n01440764_10026.JPEG.
func synthetic(classes, perClass int) *Manifest {
	m := &Manifest{root: "/data/imagenet/train", folders: []folder{{"", 1}}}
	m.reserve(classes*perClass, 0)
	for label := range classes {
		class := fmt.Sprintf("n%08d", 1440764+label*37)
		m.classes = append(m.classes, class)
		m.folders = append(m.folders, folder{class, 1_700_000_000_123_456_789 + int64(label)})
		for i := range perClass {
			name := fmt.Sprintf("%s_%05d.JPEG", class, i)
			m.add(uint32(label+1), name, uint32(label), int64(100_000+(i*7919)%50_000),
				1_600_000_000_000_000_000+int64(i)*1_000_003)
		}
	}
	return m
}

// BenchmarkReadParquet loads a manifest of ImageNet's size: 1.3 M samples in 1,000 classes. The bar
// is 2 s on one core, and 100 bytes a sample in memory.
func BenchmarkReadParquet(b *testing.B) {
	path := filepath.Join(b.TempDir(), "m.parquet")
	if err := WriteParquet(path, synthetic(1000, 1300)); err != nil {
		b.Fatal(err)
	}
	info, _ := os.Stat(path)
	var m *Manifest
	for b.Loop() {
		var err error
		if m, err = ReadParquet(path); err != nil {
			b.Fatal(err)
		}
	}
	with := heapBytes()
	n := m.Len()
	runtime.KeepAlive(m)
	m = nil
	b.ReportMetric(float64(with-heapBytes())/float64(n), "B/sample")
	b.ReportMetric(float64(info.Size())/float64(n), "fileB/sample")
}

func BenchmarkWriteParquet(b *testing.B) {
	m := synthetic(1000, 1300)
	for b.Loop() {
		if err := WriteParquet(filepath.Join(b.TempDir(), "m.parquet"), m); err != nil {
			b.Fatal(err)
		}
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// BenchmarkScan scans 1 M files of a few bytes in 1,000 folders. The bar is 150,000 files a second
// on two cores and tmpfs: set TMPDIR to one, of which it takes about 6 GB until it ends.
func BenchmarkScan(b *testing.B) {
	root := b.TempDir()
	growMany(b, root, 1000, 1000)
	files := 0
	for b.Loop() {
		m, err := Scan(context.Background(), root, ScanOptions{})
		if err != nil {
			b.Fatal(err)
		}
		files += m.Len()
	}
	b.ReportMetric(float64(files)/b.Elapsed().Seconds(), "files/s")
}

// growMany makes folders folders with each each files, as a data set of so many classes.
func growMany(b *testing.B, root string, folders, each int) {
	for class := range folders {
		dir := filepath.Join(root, fmt.Sprintf("n%08d", class))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for i := range each {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("n%08d_%05d.JPEG", class, i)),
				[]byte("JPEG"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkChecksums reads 64 files of 16 MiB, and 4,000 of 110 KB.
func BenchmarkChecksums(b *testing.B) {
	for _, c := range []struct {
		name            string
		files, sizeByte int
	}{{"16MiB", 64, 16 << 20}, {"110kB", 4000, 110_000}} {
		b.Run(c.name, func(b *testing.B) {
			root := b.TempDir()
			data := make([]byte, c.sizeByte)
			for i := range c.files {
				if err := os.WriteFile(filepath.Join(root, fmt.Sprint(i)), data, 0o644); err != nil {
					b.Fatal(err)
				}
			}
			m, err := Scan(context.Background(), root, ScanOptions{})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := Checksums(context.Background(), m, ChecksumOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(m.TotalBytes())
		})
	}
}

// BenchmarkCompare compares two manifests of ImageNet's size.
func BenchmarkCompare(b *testing.B) {
	x, y := synthetic(1000, 1300), synthetic(1000, 1300)
	for b.Loop() {
		if Compare(x, y, 5).Any() {
			b.Fatal("they differ")
		}
	}
}

// BenchmarkFetch reads files of 110 KiB, in a new tree: TMPDIR should be a tmpfs, so that it
// measures the Fetcher. 256 samples are asked for at a time.
func BenchmarkFetch(b *testing.B) {
	const files, sizeBytes = 500, 110 << 10
	root := b.TempDir()
	for i := range files {
		if err := os.WriteFile(filepath.Join(root, fmt.Sprint(i)), make([]byte, sizeBytes),
			0o644); err != nil {
			b.Fatal(err)
		}
	}
	benchmarkFetch(b, scan(b, root))
}

func benchmarkFetch(b *testing.B, m *Manifest) {
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
