package systems

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// TestMemory compares Memory with a plain model, with samples of different sizes.
func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const samples = 30
		ranks := rapid.IntRange(1, 6).Draw(t, "ranks")
		size := func(id draw.SampleID) int64 { return 1 + int64(id)%3 }
		m := NewMemory(samples, ranks, 20, size)
		homes := map[draw.SampleID]int{}
		room := make([]int64, ranks)
		for r := range room {
			room[r] = 20*int64(r+1)/int64(ranks) - 20*int64(r)/int64(ranks)
		}
		used, loaded, requests := int64(0), int64(0), int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id, rank := draw.SampleID(rapid.IntRange(0, samples-1).Draw(t, "id")),
				rapid.IntRange(0, ranks-1).Draw(t, "rank")
			home, here := homes[id]
			ahead := rapid.Bool().Draw(t, "ahead")
			switch {
			case here:
				if m.Home(id) != home {
					t.Fatalf("sample %d is at rank %d, want %d", id, m.Home(id), home)
				}
				m.Drop(id)
				delete(homes, id)
				room[home] += size(id)
				used -= size(id)
			case m.Fits(id):
				if room[rank] < size(id) && slices.Max(room) > room[rank] {
					rank = slices.Index(room, slices.Max(room))
				}
				if ahead {
					m.Load([]draw.SampleID{id}, int32(rank))
					loaded, requests = loaded+size(id), requests+1
				} else {
					m.Keep(id, int32(rank))
				}
				if m.Fresh(id) != ahead || m.Served(id) != ahead || m.Served(id) {
					t.Fatalf("sample %d, brought in ahead: %v, says otherwise", id, ahead)
				}
				homes[id] = rank
				room[rank] -= size(id)
				used += size(id)
			}
			if _, here := homes[id]; m.Has(id) != here || m.UsedBytes() != used ||
				used > m.CapacityBytes() {
				t.Fatalf("sample %d is here: %v, %d bytes are used, want %v and %d", id, m.Has(id),
					m.UsedBytes(), here, used)
			}
		}
		if b, r := m.Loaded(); b != loaded || r != requests {
			t.Fatalf("%d bytes by %d requests were loaded, want %d by %d", b, r, loaded, requests)
		}
	})
}

// TestMemoryAfterADrop checks what the caller of a pool needs to know about a sample that was
// served and dropped in one batch.
func TestMemoryAfterADrop(t *testing.T) {
	m := NewMemory(4, 2, 2, func(draw.SampleID) int64 { return 1 })
	m.Load([]draw.SampleID{3}, 1)
	m.Drop(3)
	if m.Has(3) || m.Home(3) != 1 || !m.Served(3) || m.Served(3) {
		t.Error("sample 3 was at rank 1 and never drawn, the memory says otherwise")
	}
	m.Keep(3, 0)
	if m.Home(3) != 0 || m.Fresh(3) {
		t.Error("sample 3 was read for a draw of its own by rank 0, the memory says otherwise")
	}
	if m.Home(0) != -1 {
		t.Errorf("sample 0 was at rank %d, it never was anywhere", m.Home(0))
	}
	if moved := m.Moved(); !slices.Equal(moved, []draw.SampleID{3, 3, 3}) {
		t.Errorf("samples %v moved", moved)
	}
	if moved := m.Moved(); len(moved) > 0 {
		t.Errorf("samples %v moved again", moved)
	}
}

func TestMemoryPanics(t *testing.T) {
	for name, misuse := range map[string]func(*Memory){
		"twice":    func(m *Memory) { m.Keep(1, 0); m.Keep(1, 0) },
		"too many": func(m *Memory) { m.Load([]draw.SampleID{0, 1, 2}, 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse(NewMemory(4, 2, 2, func(draw.SampleID) int64 { return 1 }))
		}()
	}
}

// TestMemoryCopies checks that copies take room on their ranks, are found there, and are dropped
// with the sample.
func TestMemoryCopies(t *testing.T) {
	m := NewMemory(4, 3, 6, func(draw.SampleID) int64 { return 1 })
	m.Keep(2, 1)
	m.Copy(2, 0)
	m.Copy(2, 2)
	m.Keep(3, 0)
	if !m.At(2, 0) || !m.At(2, 1) || !m.At(2, 2) || m.At(3, 1) || m.At(1, 0) || m.Home(2) != 1 {
		t.Error("the copies are not where they were put")
	}
	if m.UsedBytes() != 4 || m.Room(0) != 0 || m.Room(1) != 1 || m.Room(2) != 1 {
		t.Errorf("%d bytes are used, %d, %d and %d are free", m.UsedBytes(), m.Room(0), m.Room(1),
			m.Room(2))
	}
	m.Drop(2)
	if m.UsedBytes() != 1 || m.Room(0) != 1 || m.Room(1) != 2 || m.Room(2) != 2 || m.At(2, 0) ||
		m.At(2, 1) {
		t.Errorf("%d bytes are used after a drop, %d, %d and %d are free", m.UsedBytes(), m.Room(0),
			m.Room(1), m.Room(2))
	}
	for name, copy := range map[string]func(){
		"of a sample that is not here": func() { m.Copy(1, 0) },
		"at its home":                  func() { m.Copy(3, 0) },
		"where there is no room":       func() { m.Keep(0, 0); m.Keep(1, 1); m.Copy(1, 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a copy %s was made", name)
				}
			}()
			copy()
		}()
	}
}

// TestHeap compares the heap with a linear search of a list.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rank := make([]int, 12)
		h := newHeap(func(a, b stager.Place) bool { return rank[a] < rank[b] })
		var in []stager.Place
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := stager.Place(rapid.IntRange(0, len(rank)-1).Draw(t, "place"))
			at := slices.Index(in, p)
			if h.Has(p) != (at >= 0) {
				t.Fatalf("place %d is in the heap: %v", p, h.Has(p))
			}
			switch {
			case at < 0:
				rank[p] = rapid.IntRange(0, 4).Draw(t, "rank")
				h.Push(p)
				in = append(in, p)
			case rapid.Bool().Draw(t, "fix"):
				rank[p] = rapid.IntRange(0, 4).Draw(t, "rank")
				h.Fix(p)
			default:
				h.Remove(p)
				in = slices.Delete(in, at, at+1)
			}
			got, ok := h.Min()
			if ok != (len(in) > 0) || h.Len() != len(in) {
				t.Fatalf("%d places in the heap, want %d", h.Len(), len(in))
			}
			if !ok {
				continue
			}
			want := slices.MinFunc(in, func(a, b stager.Place) int {
				if rank[a] != rank[b] {
					return rank[a] - rank[b]
				}
				return int(a - b)
			})
			if got != want {
				t.Fatalf("place %d of rank %d is first, want %d of rank %d", got, rank[got], want,
					rank[want])
			}
		}
	})
}
