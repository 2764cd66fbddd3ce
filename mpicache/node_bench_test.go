package mpicache

import (
	"testing"

	"rankpool/mpicache/door"
)

// BenchmarkGet serves warm batches of 64 to one Go client, a round trip each.
func BenchmarkGet(b *testing.B) {
	cl := newClusterIn(b, b.TempDir, 1, 6400, 4<<20)
	defer cl.close()
	tr := cl.mustOpen(b, 0, 1, "sequential", 64)
	defer tr.close()
	epoch, batch := 0, 100
	var lease []uint32
	b.ReportAllocs()
	for b.Loop() {
		if batch == 100 {
			batch = 0
			if _, err := tr.plan(epoch); err != nil {
				b.Fatal(err)
			}
			epoch++
		}
		p := u32s(append([]uint32{0, uint32(epoch - 1), uint32(batch), uint32(len(lease))}, lease...)...)
		reply, err := tr.Call(door.KindGet, tr.tally.Append(p))
		if err != nil {
			b.Fatal(err)
		}
		lease = append(lease[:0], le.Uint32(reply))
		batch++
	}
}
