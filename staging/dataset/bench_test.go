package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// synthetic returns a manifest like ImageNet's: classes folders with perClass files each, named
// n01440764_10026.JPEG.
func synthetic(classes, perClass int) *Manifest {
	m := &Manifest{root: "/data/imagenet/train", folders: []Folder{{"", 1}}}
	m.reserve(classes*perClass, 0)
	for label := range classes {
		class := fmt.Sprintf("n%08d", 1440764+label*37)
		m.classes = append(m.classes, class)
		m.folders = append(m.folders, Folder{class, 1_700_000_000_123_456_789 + int64(label)})
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

// BenchmarkCompare compares two manifests of ImageNet's size.
func BenchmarkCompare(b *testing.B) {
	x, y := synthetic(1000, 1300), synthetic(1000, 1300)
	for b.Loop() {
		if Compare(x, y, 5).Any() {
			b.Fatal("they differ")
		}
	}
}
