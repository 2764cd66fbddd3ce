package slab

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var twoSets = []Set{{Samples: 40, Key: [32]byte{1}}, {Samples: 7, Key: [32]byte{2}}}

func sizeOf(set, sample int) int64 { return int64(50+90*set) + int64(sample)*3 }

// pattern returns a sample's bytes.
func pattern(set, sample int) []byte {
	return bytes.Repeat([]byte{byte(1 + set*100 + sample)}, int(sizeOf(set, sample)))
}

// A scribbler brings samples into a slab and gives them up, as a rank does.
type scribbler struct {
	*Slab
	rng *rand.Rand
}

func newScribbler(t testing.TB, s *Slab, seed uint64) *scribbler {
	t.Helper()
	return &scribbler{Slab: s, rng: rand.New(rand.NewPCG(seed, 1))}
}

// step brings in a sample, as if byte by byte, or evicts one. written is called in the middle of
// each change of the samples' bytes.
func (w *scribbler) step(written func()) {
	set := w.rng.IntN(2)
	id := w.rng.IntN(twoSets[set].Samples)
	e := w.Entries(set)
	if off, ok := e.Place(id); ok {
		if w.rng.IntN(2) == 0 {
			e.Keep(id, w.rng.IntN(3) > 0)
			return
		}
		e.Keep(id, false)
		e.Drop(id)
		w.Free(off)
		return
	}
	off, ok := w.Alloc(sizeOf(set, id))
	if !ok {
		return
	}
	e.Take(id, off)
	into, sample := w.Bytes(off, sizeOf(set, id)), pattern(set, id)
	if w.rng.IntN(2) == 0 {
		e.Keep(id, true) // before it is there, as a policy decides
	}
	for _, half := range []int{len(into) / 2, len(into)} {
		copy(into[:half], sample)
		written()
	}
	e.Put(id, off, Sum(into))
	e.Keep(id, true)
	if w.rng.IntN(4) == 0 { // somebody else wrote there: it is read again
		e.Spoil(id)
		into[0]++
		written()
		copy(into, sample)
		e.Put(id, off, Sum(into))
	}
}

// isWhole reports whether the bytes of a sample match its entry.
func isWhole(e *Entries, id int, sample []byte) bool {
	sum, whole := e.Sum(id)
	return whole && sum == Sum(sample)
}

// checkWhole checks that every entry that can be taken over has its sample's bytes.
func checkWhole(t testing.TB, s *Slab, whole []Entry) {
	t.Helper()
	for _, w := range whole {
		got := s.memory[w.Off : w.Off+sizeOf(w.Set, w.Sample)]
		if !bytes.Equal(got, pattern(w.Set, w.Sample)) || !isWhole(s.Entries(w.Set), w.Sample, got) {
			t.Fatalf("%+v is damaged, but its entry is whole", w)
		}
	}
}

// copyOf returns the slab as a rank that takes it over now would find it.
func copyOf(t testing.TB, s *Slab) *Slab {
	t.Helper()
	c := &Slab{Arena: NewArena(0), fd: -1, memory: bytes.Clone(s.memory)}
	n := s.TakenBytes()
	if c.directory = openDirectory(c.memory[n:], n, twoSets); c.directory == nil {
		t.Fatal("the directory is not of these data sets")
	}
	return c
}

// TestDeathAtEveryStore stops a writer after each of its stores: every entry is whole, or is not
// taken over, and what was a whole resident before and after the store is taken over.
func TestDeathAtEveryStore(t *testing.T) {
	s, err := New(4096, twoSets, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := newScribbler(t, s, 1)
	deaths, most := 0, 0
	die := func() {
		c := copyOf(t, s)
		whole, _ := c.directory.recover(c.TakenBytes(), sizeOf)
		checkWhole(t, c, whole)
		deaths++
		most = max(most, len(whole))
	}
	for i := range twoSets {
		s.Entries(i).stored = die
	}
	for range 1500 {
		w.step(die)
	}
	if deaths < 2500 || most < 15 {
		t.Errorf("only %d deaths, with %d samples at most", deaths, most)
	}
}

// takeOver takes s's memory over by the descriptor that clients have.
func takeOver(t testing.TB, s *Slab, sets []Set) *Slab {
	t.Helper()
	fd, err := s.ReadOnlyFD()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	is, err := s.Identity()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Take(fd, is, sets)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestResume recovers a slab twice, the second time with a smaller size, and then uses it.
func TestResume(t *testing.T) {
	s := newSlabOf(t, 1<<16, twoSets)
	w := newScribbler(t, s, 2)
	for range 500 {
		w.step(func() {})
	}
	_, want := copyOf(t, s).directory.recover(1<<16, sizeOf)
	for _, size := range []int64{1 << 16, 4096} {
		again := takeOver(t, s, twoSets)
		whole, residents, err := again.Resume(size, sizeOf)
		if err != nil || len(whole) == 0 || size == 1<<16 && (len(whole) != want || residents != want) {
			t.Fatalf("%d of %d residents of %d bytes, want %d (%v)", len(whole), residents, size, want, err)
		}
		checkWhole(t, again, whole)
		checkArena(t, again.Arena)
		used := int64(0)
		for _, e := range whole {
			used += Footprint(sizeOf(e.Set, e.Sample))
			if e.Off+sizeOf(e.Set, e.Sample) > size {
				t.Errorf("%+v lies beyond %d", e, size)
			}
		}
		if again.UsedBytes() != used || again.SizeBytes() != size {
			t.Errorf("%d bytes of %d are used, want %d of %d",
				again.UsedBytes(), again.SizeBytes(), used, size)
		}
		for _, e := range whole {
			again.Free(e.Off)
		}
		checkArena(t, again.Arena)
		if again.largestFreeBytes() != size {
			t.Errorf("all given back: %d of %d", again.largestFreeBytes(), size)
		}
		_ = again.Close()
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.fd, &st); err != nil || st.Blocks*512 > 2*4096+4096 {
		t.Errorf("%d bytes are still allocated (%v)", st.Blocks*512, err)
	}
}

// TestDeathWhileTakingOver stops a rank that takes memory over, of which it needs less than there
// was, after each of its stores: the next one finds whole entries, or ones that their sums show to
// be damaged.
func TestDeathWhileTakingOver(t *testing.T) {
	s := newSlabOf(t, 1<<16, twoSets)
	w := newScribbler(t, s, 4)
	for range 500 {
		w.step(func() {})
	}
	again := takeOver(t, s, twoSets)
	defer again.Close()
	deaths, kept, given := 0, 0, 0
	for i := range twoSets {
		again.Entries(i).stored = func() {
			deaths++
			c := copyOf(t, again)
			whole, _ := c.directory.recover(c.TakenBytes(), sizeOf)
			for _, e := range whole {
				got := c.memory[e.Off : e.Off+sizeOf(e.Set, e.Sample)]
				if !isWhole(c.Entries(e.Set), e.Sample, got) {
					given++ // its memory was returned to the system
				} else if kept++; !bytes.Equal(got, pattern(e.Set, e.Sample)) {
					t.Fatalf("%+v is damaged, but its entry is whole", e)
				}
			}
		}
	}
	if _, _, err := again.Resume(2048, sizeOf); err != nil {
		t.Fatal(err)
	}
	if deaths < 10 || kept < 100 || given == 0 {
		t.Errorf("%d deaths, %d entries kept, %d given away", deaths, kept, given)
	}
}

func newSlabOf(t testing.TB, sizeBytes int64, sets []Set) *Slab {
	t.Helper()
	s, err := New(sizeBytes, sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestTakeRefuses checks which memory Take refuses.
func TestTakeRefuses(t *testing.T) {
	s, other := newSlabOf(t, 1<<16, twoSets), newSlabOf(t, 1<<16, twoSets)
	is, _ := s.Identity()
	open, err := unix.MemfdCreate("not sealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil || unix.Ftruncate(open, 1<<16) != nil {
		t.Fatal(err)
	}
	defer unix.Close(open)
	unsealed, _ := IdentityOf(open)
	longer := is
	longer.SizeBytes++
	changed := []Set{twoSets[0], {Samples: 7, Key: [32]byte{3}}}
	more := []Set{twoSets[0], {Samples: 8, Key: [32]byte{2}}}
	for name, c := range map[string]struct {
		fd   int
		want Identity
		sets []Set
		says string
	}{
		"other memory":        {other.fd, is, twoSets, "the memory is"},
		"another size":        {s.fd, longer, twoSets, "the memory is"},
		"a size that changes": {open, unsealed, twoSets, "not sealed"},
		"another data set":    {s.fd, is, changed, "other data sets"},
		"fewer data sets":     {s.fd, is, twoSets[:1], "other data sets"},
		"more samples":        {s.fd, is, more, "other data sets"},
		"too many samples":    {s.fd, is, []Set{{Samples: 1 << 20}}, "too small"},
		"no descriptor":       {-1, is, twoSets, "fstat"},
	} {
		taken, err := Take(c.fd, c.want, c.sets)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", name, taken, err)
		}
	}
}

// TestSpoiltBytes checks that a sample with other bytes than were written is not whole.
func TestSpoiltBytes(t *testing.T) {
	s := newSlabOf(t, 1<<16, twoSets)
	off, _ := s.Alloc(sizeOf(0, 3))
	b := s.Bytes(off, sizeOf(0, 3))
	copy(b, pattern(0, 3))
	e := s.Entries(0)
	if isWhole(e, 3, b) {
		t.Error("a sample is whole before it was put there")
	}
	e.Put(3, off, Sum(b))
	if !isWhole(e, 3, b) {
		t.Error("a sample is not whole")
	}
	b[17]++
	if isWhole(e, 3, b) {
		t.Error("a sample with another byte is whole")
	}
	if e.Spoil(3); isWhole(e, 3, b) {
		t.Error("a sample with other bytes than its own is whole")
	}
	if at, ok := e.Place(3); !ok || at != off {
		t.Errorf("a sample with other bytes than its own lies at %d, %v, not at %d", at, ok, off)
	}
	e.Put(3, off, Sum(b))
	if e.Drop(3); isWhole(e, 3, b) {
		t.Error("the entry of an evicted sample is whole")
	}
}

// TestGoldenDirectory compares a directory with docs/wire/slab_golden.bin: 256 bytes for samples,
// and sets of 3 and 2 that have whole ones.
func TestGoldenDirectory(t *testing.T) {
	const samples = 256
	sets := []Set{{Samples: 3, Key: [32]byte{1}}, {Samples: 2, Key: [32]byte{2}}}
	memory := make([]byte, samples+directoryBytes(sets))
	copy(memory[64:], "the bytes of sample 2")
	copy(memory[128:], "those of another")
	d := newDirectory(memory[samples:], samples, sets)
	d.entries[0].Put(2, 64, Sum(memory[64:64+21]))
	d.entries[0].Keep(2, true)
	d.entries[0].Keep(1, true) // it is not there yet
	d.entries[1].Put(0, 128, Sum(memory[128:128+16]))
	d.entries[1].Put(1, 192, 1) // other bytes than were written
	const path = "../../docs/wire/slab_golden.bin"
	if *update {
		if err := os.WriteFile(path, memory, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(golden, memory) {
		t.Errorf("the directory is not that of %s (%v)", path, err)
	}
}

var update = flag.Bool("update", false, "write the golden file")

// FuzzDirectory fills a directory with anything.
func FuzzDirectory(f *testing.F) {
	f.Add([]byte{0xff, 1, 2, 3}, uint64(1))
	f.Fuzz(func(t *testing.T, junk []byte, seed uint64) {
		const size = 4096
		memory := make([]byte, size+directoryBytes(twoSets))
		s := &Slab{Arena: NewArena(0), fd: -1, memory: memory}
		s.directory = newDirectory(memory[size:], size, twoSets)
		rng := rand.New(rand.NewPCG(seed, 1))
		for _, e := range s.directory.entries {
			for id := range e.words {
				switch rng.IntN(3) {
				case 0:
					e.words[id] = rng.Uint64()
				case 1:
					e.words[id] = wholeBit | keptBit | rng.Uint64N(80)
				}
			}
		}
		copy(memory[size+rng.Int64N(directoryBytes(twoSets)):], junk)
		if s.directory = openDirectory(memory[size:], size, twoSets); s.directory == nil {
			return // the header differs
		}
		whole, _, err := s.Resume(size, sizeOf)
		if err != nil {
			t.Fatal(err)
		}
		checkArena(t, s.Arena)
		for _, w := range whole {
			s.Free(w.Off)
		}
		checkArena(t, s.Arena)
	})
}
