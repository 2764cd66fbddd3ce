package index

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkScan scans 1 M files of a few bytes in 1,000 folders. The bar is 150,000 files a second
// on two cores and tmpfs: set TMPDIR to a tmpfs, of which it uses about 6 GB until it ends.
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

// growMany makes a data set: folders class folders of each files.
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
