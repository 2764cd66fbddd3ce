package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"rankpool/mpicache/slab"
	"rankpool/mpicache/transport"
	"rankpool/scheduler/draw"
)

// TestDirectoryWrittenTo lets another process write to the directory in the memory: either the rank
// ends with an error, or the write does no harm.
func TestDirectoryWrittenTo(t *testing.T) {
	const samples, size = 240, 40
	memory, err := slab.New(1<<16, []slab.Set{{Samples: samples}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	told := 0
	s := New(&Rank{
		Transport: transport.NewLocal(1)[0], Memory: NewMemory(memory, func(error) { told++ }),
	}, 0, &DataSet{
		Name: "train", Samples: samples, PartitionBytes: []int64{1 << 14},
		Size: func(draw.SampleID) int64 { return size },
	})
	for id := draw.SampleID(0); id < samples; id += 2 {
		if !s.occupy(id) {
			t.Fatalf("no room for sample %d", id)
		}
		s.put(id, slab.Sum(s.bytes(id)))
	}
	words := memory.Bytes(memory.SizeBytes()+128, 8*samples) // after header and set
	good := bytes.Clone(words)
	rng := rand.New(rand.NewPCG(1, 2))
	ended := 0
	// try reports whether the rank ended as it did something with a sample.
	try := func(do func(draw.SampleID), id int) (why error) {
		defer func() {
			if r := recover(); r != nil {
				why = r.(error)
			}
		}()
		do(draw.SampleID(id))
		return nil
	}
	for round := range 2000 {
		id := rng.IntN(samples)
		word := words[8*id:]
		binary.LittleEndian.PutUint64(word, rng.Uint64()>>rng.IntN(64))
		if round%3 == 0 { // the place of another sample
			copy(word[:8], good[8*rng.IntN(samples):])
		}
		for _, do := range []func(draw.SampleID){
			func(id draw.SampleID) {
				if s.Has(id) {
					s.Place(id)
				}
			},
			func(id draw.SampleID) { s.bytes(id) },
			func(id draw.SampleID) { s.put(id, 1) },
			func(id draw.SampleID) { s.entries.Keep(int(id), round%2 == 0) },
			s.vacate,
		} {
			why := try(do, id)
			if why == nil {
				continue
			}
			ended++
			var crash runtime.Error
			if errors.As(why, &crash) ||
				!strings.Contains(why.Error(), "another process has written to the directory") {
				t.Fatalf("round %d, word %#x: %v", round, binary.LittleEndian.Uint64(word), why)
			}
		}
	}
	if ended < 500 || told != ended {
		t.Errorf("%d ends, of which the rank has heard of %d", ended, told)
	}
}
