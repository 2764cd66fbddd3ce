package top

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"rankpool/mpicache/stats"
)

// someNodes returns n ranks after some seconds. Rank 1 waits for storage, rank 2 has a tier and a
// GPU without readings.
func someNodes(n int, seconds float64) []stats.Reading {
	var nodes []stats.Reading
	for r := range n {
		rate := func(perSecond float64) int64 { return int64(perSecond * seconds) }
		given := stats.Sums{
			stats.HitsLocal: 1000, stats.HitsRemote: 3000, stats.StorageReads: 950,
			stats.FallbackReads: 50, stats.TrainSeconds: 4, stats.StallSeconds: 0.04,
			stats.PeerBytes: 330e6,
		}
		s := stats.Reading{
			Rank: r, Host: fmt.Sprintf("nid%03d", r+1), Seconds: seconds, Trainers: 4,
			Progress: stats.Progress{
				Data: "train", Epoch: 3, Batch: 120 - r%7, Batches: 600, Sums: given.Times(seconds),
			},
			SlabBytes: 64 << 30, UsedBytes: 60 << 30, Residents: 500000, ResidentBytes: 55 << 30,
			Ready: 0.97, NextPlanned: r != 3,
			Machine: stats.Machine{
				StorageReads: rate(1000), StorageBytes: rate(110e6), StorageSeconds: 3.2 * seconds,
				MemoryFreeBytes: 20 << 30, MemoryLimit: "the control group of the job",
			},
		}
		for g := range 4 {
			s.Machine.GPUs = append(s.Machine.GPUs, stats.GPU{
				UUID: fmt.Sprintf("GPU-%d-%d", r, g), Index: g, Utilisation: new(0.95),
				SampledSeconds: seconds, IdleSeconds: seconds / 10, WaitedSeconds: stats.Measured(seconds / 20),
			})
		}
		switch r {
		case 1:
			s.Sums[stats.StallSeconds], s.Machine.StorageSeconds = 1.6*seconds, 480*seconds
			s.Machine.MemoryFreeBytes, s.Ready = 500<<20, 0.31
			for g := range s.Machine.GPUs {
				s.Machine.GPUs[g].Utilisation = new(0.3)
			}
		case 2:
			s.Sums[stats.TierHits] = 500 * seconds
			s.Machine.GPUs = []stats.GPU{{UUID: "MIG-1"}}
			s.Machine.MemoryLimit = ""
		}
		nodes = append(nodes, s)
	}
	return nodes
}

// withJobs adds trainings to nodes. The first one gets 100 samples a second on each, the next one
// 200, and so on; the last one has begun on rank 0 only. The benefit of a is known.
func withJobs(nodes []stats.Reading, names ...string) []stats.Reading {
	for r := range nodes {
		for i, name := range names {
			n, seconds := float64(i+1)*nodes[r].Seconds, nodes[r].Seconds
			j := stats.Job{Name: name, Progress: stats.Progress{
				Data: "train", Epoch: i, Batch: 10 + r, Batches: 50, Sums: stats.Sums{
					stats.HitsLocal: 70 * n, stats.StorageReads: 30 * n,
					stats.StallSeconds: 0.2 * seconds, stats.TrainSeconds: seconds,
				},
			}}
			if name == "a" { // the slower rank counts
				j.Benefit = stats.Benefit{BatchSeconds: 0.1, UncachedBatchSeconds: 0.1 + 0.1*float64(r)}
			}
			if i == len(names)-1 && r > 0 {
				j = stats.Job{Name: name, Progress: stats.Progress{Data: "train", Epoch: -1}}
			}
			nodes[r].Jobs = append(nodes[r].Jobs, j)
		}
	}
	return nodes
}

// TestJobs checks what trainings got if one is new, one has restarted, and one is gone.
func TestJobs(t *testing.T) {
	reading := func(seconds float64, jobs ...stats.Job) []stats.Reading {
		return []stats.Reading{{Seconds: seconds, Jobs: jobs}}
	}
	job := func(name string, hits float64) stats.Job {
		return stats.Job{Name: name, Progress: stats.Progress{Sums: stats.Sums{stats.HitsLocal: hits}}}
	}
	jobs := jobsOf(rowsOf(reading(10, job("a", 100), job("b", 500), job("gone", 9)),
		reading(12, job("c", 40), job("b", 60), job("a", 300))))
	want := map[string]float64{"a": 100, "b": 30, "c": 20}
	if len(jobs) != len(want) {
		t.Errorf("%+v", jobs)
	}
	for _, j := range jobs {
		if j.Rates == nil || j.Rates.SamplesPerSecond != want[j.Name] {
			t.Errorf("%s: %+v, want %v samples/s", j.Name, j.Rates, want[j.Name])
		}
	}
	if jobs := jobsOf(rowsOf(someNodes(2, 1))); jobs != nil {
		t.Errorf("one training is in %+v", jobs)
	}
}

func rowsOf(readings ...[]stats.Reading) (rows []nodeRow) {
	for _, r := range readings {
		rows = rowsAfter(rows, r)
	}
	return rows
}

func near[T ~float64](got T, want float64) bool {
	return math.Abs(float64(got)-want) < 1e-3*max(1, want)
}

func TestRates(t *testing.T) {
	rows := rowsOf(someNodes(3, 100), someNodes(3, 101.5))
	for rank, want := range []struct{ stall, latency, gpu, tier float64 }{
		{0.01, 0.0032, 0.95, 0},
		{0.4, 0.48, 0.3, 0},
		{0.01, 0.0032, -1, 0.1},
	} {
		r := rows[rank]
		if r.Rates == nil || !near(r.Rates.SamplesPerSecond, 5000) ||
			!near(r.Rates.LocalShare, 0.2) || !near(r.Rates.RemoteShare, 0.6) ||
			!near(r.Rates.StorageShare, 0.19) || !near(r.Rates.FallbackShare, 0.01) ||
			!near(r.Rates.TierShare, want.tier) ||
			!near(r.Rates.StorageBytesPerSecond, 110e6) ||
			!near(r.Rates.PeerBytesPerSecond, 330e6) ||
			!near(r.Rates.StorageReadsPerSecond, 1000) ||
			!near(r.Rates.StallShare, want.stall) ||
			!near(r.Rates.StorageLatencySeconds, want.latency) {
			t.Errorf("rank %d: %+v", rank, r.Rates)
		}
		gpu := utilisation(r.Machine.GPUs)
		if want.gpu >= 0 && !near(gpu, want.gpu) || want.gpu < 0 && gpu >= 0 {
			t.Errorf("rank %d: GPU %v, want %v", rank, gpu, want.gpu)
		}
	}
	total := totalOf(rows)
	if !near(total.Rates.SamplesPerSecond, 15000) || !near(total.Rates.StallShare, 0.14) ||
		!near(total.GPU, 0.625) || !near(total.Ready, 0.75) ||
		!near(total.GPUIdle, 0.1) || !near(total.GPUWaited, 0.5) ||
		*total.MemoryFreeBytes != 500<<20 || total.SlabBytes != 192<<30 ||
		total.Trainers != 12 || total.Batch != 118 || !total.NextPlanned ||
		totalOf(rowsOf(someNodes(4, 1))).NextPlanned {
		t.Errorf("total %+v, rates %+v", total, total.Rates)
	}
}

func TestNothingIsKnown(t *testing.T) {
	before := stats.Progress{Epoch: -1}
	quiet := []stats.Reading{{Progress: before, Seconds: 5}}
	row := rowsOf(quiet)[0]
	if row.Rates != nil || utilisation(row.Machine.GPUs) >= 0 {
		t.Errorf("after one reading: %+v", row)
	}
	later := []stats.Reading{{Progress: before, Seconds: 6}}
	r := rowsOf(quiet, later)[0].Rates
	if r.LocalShare >= 0 || r.StorageLatencySeconds >= 0 || r.StallShare >= 0 ||
		r.SamplesPerSecond != 0 {
		t.Errorf("of a rank that did nothing: %+v", r)
	}
	later[0].Sums[stats.StallSeconds], later[0].Sums[stats.TrainSeconds] = math.NaN(), 3
	if r := rowsOf(quiet, later)[0].Rates; r.StallShare >= 0 {
		t.Errorf("of a training that does not measure how long it waits: %v", r.StallShare)
	}
	total := totalOf(nil)
	if total.Epoch != -1 || total.Rates != nil || total.MemoryFreeBytes != nil ||
		total.Ready >= 0 {
		t.Errorf("total of nothing: %+v", total)
	}
}

func TestHistory(t *testing.T) {
	rank := func(r int, seconds, hits float64) stats.Reading {
		return stats.Reading{
			Rank: r, Seconds: seconds, Progress: stats.Progress{Sums: stats.Sums{stats.HitsLocal: hits}},
		}
	}
	var rows []nodeRow
	add := func(nodes ...stats.Reading) { rows = rowsAfter(rows, nodes) }
	want := func(what string, rates map[int]float64) {
		t.Helper()
		if len(rows) != len(rates) {
			t.Errorf("%s: %d rows, want %d", what, len(rows), len(rates))
		}
		for i, r := range rows {
			if i > 0 && rows[i-1].Rank >= r.Rank {
				t.Errorf("%s: not in order", what)
			}
			expected := rates[r.Rank]
			if (r.Rates == nil) != (expected < 0) ||
				r.Rates != nil && !near(r.Rates.SamplesPerSecond, expected) {
				t.Errorf("%s: rank %d: %+v, want %v", what, r.Rank, r.Rates, expected)
			}
		}
	}
	add(rank(1, 10, 100), rank(0, 10, 100))
	want("one reading", map[int]float64{0: -1, 1: -1})
	add(rank(0, 11, 150), rank(1, 10, 100))
	want("rank 1 is late", map[int]float64{0: 50, 1: -1})
	if (&run{rows: rows}).rated() {
		t.Error("rated without a second reading of rank 1")
	}
	add(rank(0, 11, 150), rank(1, 12, 120))
	want("rank 0 says nothing new", map[int]float64{0: 50, 1: 10})
	if !(&run{rows: rows}).rated() {
		t.Error("not rated with two readings of each")
	}
	add(rank(0, 12, 150), rank(1, 2, 60))
	want("rank 1 was restarted", map[int]float64{0: 0, 1: 30})
	add(rank(0, 13, 160))
	want("rank 1 is silent", map[int]float64{0: 10})
	add(rank(0, 14, 160), rank(1, 20, 600))
	want("rank 1 is back", map[int]float64{0: 0, 1: -1})
}

// The shares of the four sources add up to 1, and the total's rates are the sums of the ranks'.
func TestRatesProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "ranks")
		count := rapid.Int64Range(0, 1e9)
		reading := func(label string, from []stats.Reading) []stats.Reading {
			var nodes []stats.Reading
			for r := range n {
				var s stats.Reading
				if from != nil {
					s = from[r]
				}
				s.Rank = r
				s.Seconds += rapid.Float64Range(0.1, 10).Draw(t, label)
				for _, c := range []stats.Counter{
					stats.HitsLocal, stats.HitsRemote, stats.StorageReads, stats.FallbackReads,
				} {
					s.Sums[c] += float64(count.Draw(t, label))
				}
				s.Machine.StorageReads += count.Draw(t, label)
				s.Sums[stats.StallSeconds] += rapid.Float64Range(0, 10).Draw(t, label)
				s.Sums[stats.TrainSeconds] += rapid.Float64Range(0, 10).Draw(t, label)
				nodes = append(nodes, s)
			}
			return nodes
		}
		first := reading("first", nil)
		rows := rowsOf(first, reading("second", first))
		sum := 0.0
		for _, r := range rows {
			sum += r.Rates.SamplesPerSecond
			if r.Rates.LocalShare >= 0 {
				whole := r.Rates.LocalShare + r.Rates.RemoteShare + r.Rates.StorageShare +
					r.Rates.FallbackShare
				if math.Abs(float64(whole)-1) > 1e-9 {
					t.Errorf("the shares add up to %v", whole)
				}
			}
			if s := r.Rates.StallShare; s < 0 || s > 1 {
				t.Errorf("stall share %v", s)
			}
		}
		if got := totalOf(rows).Rates.SamplesPerSecond; math.Abs(got-sum) > 1e-6*max(1, sum) {
			t.Errorf("total of %v samples/s, want %v", got, sum)
		}
	})
}
