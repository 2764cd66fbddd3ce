package layout

import (
	"context"
	"fmt"
	"testing"

	"rankpool/scheduler"
	"rankpool/staging/posix"
)

// manyFiles is a data set of n files, each of one sample; file i is on target i mod 32.
type manyFiles int

func (n manyFiles) Len() int { return int(n) }
func (n manyFiles) Path(id scheduler.SampleID) string {
	return fmt.Sprintf("/lustre/train/%08d", id)
}
func (n manyFiles) Offset(scheduler.SampleID) int64 { return 0 }
func (n manyFiles) Size(scheduler.SampleID) int64   { return 110_000 }

// instantLustre answers without a request.
type instantLustre struct{ values [32][]byte }

func (s *instantLustre) getxattr(path, _ string) ([]byte, error) {
	return s.values[path[len(path)-1]%32], nil
}
func (s *instantLustre) magic(string) (int64, error) { return posix.LustreMagic, nil }
func (s *instantLustre) open(string) (device, error) { return nil, context.Canceled }

// BenchmarkBuild measures what a table costs beyond the file system's own time.
func BenchmarkBuild(b *testing.B) {
	sys := &instantLustre{}
	for i := range sys.values {
		sys.values[i] = plainValue(1, 1<<20, uint32(i))
	}
	const files = 100_000
	for b.Loop() {
		if _, err := build(context.Background(), sys, manyFiles(files), Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/files, "ns/file")
}
