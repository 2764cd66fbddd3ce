package stager

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// packing returns a plan of batches of one sample each, with places 2 to 4 read as a package.
func packing() *plan.Plan {
	ids := []draw.SampleID{0, 1, 2, 3, 4, 5}
	draws := (&draw.Choice{
		Drawn: ids, Served: ids, Found: make([]bool, 6), Home: make([]uint16, 6),
		Held: make([]bool, 6), Packages: []draw.Package{{2, 3, 4}},
	}).Draws()
	return plan.New(plan.Config{
		Sampler: fixed{draws}, Samples: 6, BatchSize: 1, World: []int32{0}, Ranks: 1,
	}, 0, nil)
}

// TestPackagesOfSharedMemory checks that ranks divide the packages of one of several trainings by
// who owns the samples, each in order of first draws.
func TestPackagesOfSharedMemory(t *testing.T) {
	const ranks, samples = 2, 60
	choice := &draw.Choice{
		Found: make([]bool, samples), Home: make([]uint16, samples), Held: make([]bool, samples),
		Packages: make([]draw.Package, 5),
	}
	for i := range samples {
		choice.Served = append(choice.Served, draw.SampleID(i))
		of := &choice.Packages[i%5]
		*of = append(*of, int32(i))
	}
	choice.Drawn = choice.Served
	owned := 0
	for rank := range ranks {
		p := plan.New(plan.Config{
			Sampler: fixed{choice.Draws()}, Samples: samples, BatchSize: 1, World: []int32{0, 1},
			Ranks: ranks, Rank: rank, Shared: true,
		}, 0, nil)
		s := New(Config{
			Rank: rank, Ranks: ranks, World: p.World, Samples: samples, PackageBytes: 1,
			Size:   func(draw.SampleID) int64 { return 1 },
			Policy: NewClairvoyant(),
		})
		s.Step(Planned{Plan: p}, nil)
		last := int32(-1)
		for _, pack := range s.lanes[0].packs {
			if pack.places[0] < last {
				t.Errorf("rank %d has a package from draw %d on after one from draw %d on", rank,
					pack.places[0], last)
			}
			last = pack.places[0]
			for _, id := range pack.ids() {
				owned++
				if draw.Owner(id, ranks) != rank {
					t.Errorf("rank %d has sample %d in a package", rank, id)
				}
			}
		}
	}
	if owned != samples {
		t.Errorf("%d of %d samples are in packages", owned, samples)
	}
}

// fixed always draws the same.
type fixed struct{ draws *draw.Draws }

func (fixed) Weighted() bool                    { return false }
func (f fixed) Draw(int, []float32) *draw.Draws { return f.draws }

// TestPackages checks that packages are written ahead of their use, and read with one read; samples
// of those that cannot be are read one by one. In every case training receives the same.
func TestPackages(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		room, capacity int64
		packed         []Packed // ends of Pack; none: it takes until the end
		unpacked       *Unpacked
		want           string // the commands except Deliver and Free, batch by batch
		count          PackageCount
	}{
		"written and read": {
			room: 60, capacity: 100, packed: []Packed{{Package: 1, Bytes: 30}},
			unpacked: &Unpacked{Package: 1, Bytes: 30},
			want:     "fetch 0 pack 1 [2 3 4] fetch 1 | unpack 1 [2 3 4] discard 1 | | | fetch 5 | ",
			count:    PackageCount{Writes: 1, Reads: 1, WriteBytes: 30, ReadBytes: 30},
		},
		"not written in time": {
			room: 60, capacity: 100,
			want: "fetch 0 pack 1 [2 3 4] fetch 1 | fetch 2 | fetch 3 | fetch 4 | fetch 5 | ",
		},
		"not written": {
			room: 60, capacity: 100, packed: []Packed{{Package: 1, Err: broken}},
			want: "fetch 0 pack 1 [2 3 4] discard 1 fetch 1 | fetch 2 | fetch 3 | fetch 4 | fetch 5 | ",
		},
		"not read": {
			room: 60, capacity: 100, packed: []Packed{{Package: 1, Bytes: 30}},
			unpacked: &Unpacked{Package: 1, Err: broken},
			want: "fetch 0 pack 1 [2 3 4] fetch 1 | unpack 1 [2 3 4] " +
				"fetch 2 fetch 3 fetch 4 discard 1 | | | fetch 5 | ",
			count: PackageCount{Writes: 1, WriteBytes: 30},
		},
		"no room in memory": {
			room: 60, capacity: 100, packed: []Packed{{Package: 1, Bytes: 30}},
			unpacked: &Unpacked{Package: 1, NoRoom: true},
			want: "fetch 0 pack 1 [2 3 4] fetch 1 | unpack 1 [2 3 4] " +
				"fetch 2 fetch 3 fetch 4 discard 1 | | | fetch 5 | ",
			count: PackageCount{Writes: 1, WriteBytes: 30},
		},
		"memory holds one": {
			room: 60, capacity: 10, packed: []Packed{{Package: 1, Bytes: 30}},
			unpacked: &Unpacked{Package: 1, Bytes: 30},
			want: "fetch 0 pack 1 [2 3 4] fetch 1 | unpack 1 [2] discard 1 | " +
				"fetch 3 | fetch 4 | fetch 5 | ",
			count: PackageCount{Writes: 1, Reads: 1, WriteBytes: 30, ReadBytes: 30},
		},
		"no room on disk": {
			room: 30, capacity: 100,
			want: "fetch 0 fetch 1 | fetch 2 | fetch 3 | fetch 4 | fetch 5 | ",
		},
		"none": {
			capacity: 100,
			want:     "fetch 0 fetch 1 | fetch 2 | fetch 3 | fetch 4 | fetch 5 | ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{
				Ranks: 1, World: []int32{0}, Samples: 6,
				Size:   func(draw.SampleID) int64 { return 10 },
				Policy: NewClairvoyant(), CapacityBytes: c.capacity, WindowBytes: 1000,
				PackageBytes: c.room, PackageBlockBytes: 32,
			})
			log := &strings.Builder{}
			var delivered []draw.SampleID
			var step func(e Event)
			step = func(e Event) {
				var then []Event
				for _, command := range s.Step(e, nil) {
					switch v := command.(type) {
					case Fetch:
						fmt.Fprintf(log, "fetch %d ", v.ID)
						then = append(then, Fetched{ID: v.ID})
					case Pack:
						fmt.Fprintf(log, "pack %d %v ", v.Package, v.IDs)
						for _, end := range c.packed {
							then = append(then, end)
						}
					case Unpack:
						fmt.Fprintf(log, "unpack %d %v ", v.Package, v.IDs)
						if want := []draw.SampleID{2, 3, 4}; !reflect.DeepEqual(v.Layout, want) {
							t.Errorf("the layout is %v", v.Layout)
						}
						then = append(then, *c.unpacked)
					case Discard:
						fmt.Fprintf(log, "discard %d ", v.Package)
					case Deliver:
						for i, id := range v.IDs {
							delivered = append(delivered, id)
							if v.Source[i] != FromStorage {
								t.Errorf("sample %d comes from %d", id, v.Source[i])
							}
						}
						then = append(then, Released{Lease: v.Lease})
					}
				}
				for _, e := range then {
					step(e)
				}
			}
			step(Planned{Plan: packing()})
			for b := range 6 {
				step(Requested{Batch: b, Ticket: uint64(b) + 1})
				if b < 5 {
					log.WriteString("| ")
				}
			}
			if got := log.String(); got != c.want {
				t.Errorf("commands\n%s\nwant\n%s", got, c.want)
			}
			if want := []draw.SampleID{0, 1, 2, 3, 4, 5}; !reflect.DeepEqual(delivered, want) {
				t.Errorf("delivered %v", delivered)
			}
			if got := s.Packages(0, 0); got != c.count {
				t.Errorf("counted %+v, want %+v", got, c.count)
			}
			if hits := s.PlannedHits(0, 0); hits != 0 {
				t.Errorf("%d planned hits", hits)
			}
			if len(c.packed) > 0 && s.packages.written != 0 {
				t.Errorf("%d bytes are taken by packages", s.packages.written)
			}
		})
	}
}
