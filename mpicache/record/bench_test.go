package record

import (
	"testing"

	"rankpool/scheduler"
)

// counted counts the bytes of a recording.
type counted struct{ n int }

func (c *counted) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

func (c *counted) Close() error { return nil }

// BenchmarkStep measures what recording costs a rank: an event with its commands, of the kinds that
// there are for every sample.
func BenchmarkStep(b *testing.B) {
	var out counted
	r := newRecorder(&out, begin(), quiet(), 1<<40)
	tape := r.Tape(0, testSetup("lru", "torch"))
	ids, from := []scheduler.SampleID{5, 1000000, 70}, []scheduler.Source{0, 1, 2}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		id := scheduler.SampleID(i)
		switch i % 3 {
		case 0:
			tape.Step(scheduler.Fetched{ID: id}, nil)
		case 1:
			tape.Step(scheduler.Requested{Trainer: 1, Epoch: 3, Batch: i, Ticket: uint64(i)},
				[]scheduler.Command{
					scheduler.Fetch{ID: id, Need: uint64(i)},
					scheduler.Free{ID: id + 1},
				})
		case 2:
			tape.Step(scheduler.Released{Lease: uint32(i)},
				[]scheduler.Command{scheduler.Deliver{
					Ticket: uint64(i), Lease: uint32(i), IDs: ids,
					Source: from,
				}})
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(out.n)/float64(b.N), "B/event")
}

// BenchmarkScored measures the scores of all samples.
func BenchmarkScored(b *testing.B) {
	const samples = 1 << 20
	var out counted
	r := newRecorder(&out, begin(), quiet(), 1<<40)
	tape := r.Tape(0, testSetup("lru", "torch"))
	scores := make([]float32, samples)
	for i := range scores {
		scores[i] = float32(i) * 1.37
	}
	for b.Loop() {
		tape.Step(
			scheduler.Scored{
				Epoch: 1, Scores: scores,
				Known: func(scheduler.SampleID) bool { return true },
			}, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/samples, "ns/sample")
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(out.n)/float64(b.N)/samples, "B/sample")
}
