package transport_test

import (
	"fmt"
	"testing"

	"rankpool/mpicache/transport"
)

func TestLocalContract(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d ranks", ranks), func(t *testing.T) {
			checkContract(t, transport.NewLocal(ranks))
		})
	}
}

// TestLocalSilence silences a rank: nothing arrives from it or at it, and the others continue.
func TestLocalSilence(t *testing.T) {
	group := transport.NewLocal(3)
	defer func() {
		for _, g := range group {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	type arrival struct {
		at, from int
		msg      string
	}
	arrivals := make(chan arrival, 100)
	for _, g := range group {
		g.Start(func(from int, msg []byte) { arrivals <- arrival{g.Rank(), from, string(msg)} })
	}
	group[1].(*transport.Local).Silence()
	never := func(error) { t.Error("a transfer with a silent rank was done") }
	group[0].Take(1, 1, [][]byte{make([]byte, 10)}, never)
	group[1].Put(0, 1, [][]byte{make([]byte, 10)}, never)
	group[0].Post(1, []byte("to the silent"))
	group[1].Post(2, []byte("from the silent"))
	group[1].Post(1, []byte("to itself"))
	group[0].Post(2, []byte("last"))
	group[2].Post(0, []byte("last"))
	want := map[arrival]bool{{1, 1, "to itself"}: true, {2, 0, "last"}: true, {0, 2, "last"}: true}
	for range 3 {
		if a := <-arrivals; !want[a] {
			t.Errorf("arrived: %+v", a)
		}
	}
}

// TestLocalWaitsForStart sends messages before the receiver starts.
func TestLocalWaitsForStart(t *testing.T) {
	group := transport.NewLocal(2)
	group[0].Post(1, []byte("early"))
	got := make(chan string)
	group[1].Start(func(_ int, msg []byte) { got <- string(msg) })
	if msg := <-got; msg != "early" {
		t.Errorf("got %q", msg)
	}
	for _, g := range group {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	local := transport.NewLocal(1)[0]
	defer local.Close()
	for name, misuse := range map[string]func(){
		"post to no rank":   func() { local.Post(1, nil) },
		"post too large":    func() { local.Post(0, make([]byte, 64<<20+1)) },
		"put to no rank":    func() { local.Put(-1, 0, nil, nil) },
		"take from no rank": func() { local.Take(1, 0, nil, nil) },
		"a group of none":   func() { transport.NewLocal(0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse()
		})
	}
}
