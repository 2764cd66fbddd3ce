package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"rankpool/mpicache/transport"
)

func muxes(t *testing.T, n int) []*Mux {
	t.Helper()
	var all []*Mux
	for _, rank := range transport.NewLocal(n) {
		all = append(all, NewMux(rank))
		t.Cleanup(func() {
			if err := rank.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return all
}

// TestLongMessages sends messages of several parts at the same time; short ones pass between them.
func TestLongMessages(t *testing.T) {
	group := muxes(t, 2)
	for i := range 4 {
		go group[0].Send(1, 7, bytes.Repeat([]byte{byte(i)}, 2*partBytes+i))
		go group[0].Send(1, 7, []byte{byte(i)})
	}
	lengths := map[int]int{}
	for range 8 {
		got, err := group[1].Receive(t.Context(), 7)
		if err != nil || got.From != 0 {
			t.Fatal(got.From, err)
		}
		if !bytes.Equal(got.Body, bytes.Repeat(got.Body[:1], len(got.Body))) {
			t.Error("a message has bytes of another message")
		}
		lengths[len(got.Body)]++
	}
	for i := range 4 {
		if lengths[2*partBytes+i] != 1 {
			t.Errorf("long message %d is missing: %v", i, lengths)
		}
	}
	if lengths[1] != 4 {
		t.Errorf("lengths %v", lengths)
	}
}

// TestStartLate sends messages on a channel before and after its Start: it gets all, in order.
func TestStartLate(t *testing.T) {
	group := muxes(t, 2)
	const n = 100
	got := make(chan byte, n)
	for i := range n {
		if i == n/2 {
			group[1].Channel(3).Start(func(_ int, body []byte) { got <- body[0] })
		}
		group[0].Channel(3).Post(1, []byte{byte(i)})
		group[0].Send(1, 4, []byte{255}) // another channel
	}
	for i := range n {
		if b := <-got; b != byte(i) {
			t.Fatalf("message %d is %d", i, b)
		}
	}
}

// TestCalls makes calls in parallel, which are answered in any order, by a value or an error.
func TestCalls(t *testing.T) {
	group := muxes(t, 3)
	for _, m := range group[1:] {
		NewCalls(m, 1, func(from int, request []byte, reply func([]byte, error)) {
			text := fmt.Sprintf("%d asks %s", from, request)
			go func() {
				if text == "0 asks 13" {
					reply(nil, errors.New("no luck"))
					return
				}
				reply([]byte(text), nil)
			}()
		})
	}
	calls := NewCalls(group[0], 1, nil)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			got, err := calls.Call(t.Context(), 1+i%2, fmt.Append(nil, i))
			if i == 13 {
				if remote := (*RemoteError)(nil); !errors.As(err, &remote) || remote.Rank != 2 ||
					err.Error() != "no luck (rank 2)" {
					t.Errorf("call 13: %q, %v", got, err)
				}
			} else if err != nil || string(got) != fmt.Sprintf("0 asks %d", i) {
				t.Errorf("call %d: %q, %v", i, got, err)
			}
		})
	}
	all.Wait()
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("enough"))
	silent := NewCalls(group[0], 2, nil) // no rank answers on that channel
	if _, err := silent.Call(ended, 1, nil); err == nil || err.Error() != "enough" {
		t.Errorf("a call that ended early: %v", err)
	}
	if len(calls.waiting)+len(silent.waiting) > 0 {
		t.Error("a canceled call is kept")
	}
}

// TestValues spreads, gathers and exchanges values among 1 to 6 ranks.
func TestValues(t *testing.T) {
	for n := 1; n <= 6; n++ {
		var all sync.WaitGroup
		var before atomic.Int32
		for rank, m := range muxes(t, n) {
			all.Go(func() {
				value := "from " + fmt.Sprint(rank)
				if err := Spread(t.Context(), m, 1, &value); err != nil || value != "from 0" {
					t.Errorf("%d ranks: spread to %d: %q, %v", n, rank, value, err)
				}
				got, err := Gather(t.Context(), m, 2, rank)
				if err != nil || len(got) != n && rank == 0 || rank > 0 && got != nil {
					t.Errorf("%d ranks: gathered by %d: %v, %v", n, rank, got, err)
				}
				came := 0
				got, err = Exchange(t.Context(), m, 3, 2*rank, func(n int) { came = n })
				if err != nil || len(got) != n || came != n {
					t.Errorf("%d ranks: exchanged by %d: %v, %v", n, rank, got, err)
				}
				for from, value := range got {
					if value != 2*from {
						t.Errorf("%d ranks: %d has %v", n, rank, got)
					}
				}
				before.Add(1)
				if err := Barrier(t.Context(), m, 4); err != nil || before.Load() != int32(n) {
					t.Errorf("%d ranks: %d passed a barrier with %d", n, rank, before.Load())
				}
			})
		}
		all.Wait()
	}
}

// TestGatherHearsEveryRank sends twice from one rank, as a rank does that was wrongly considered
// dead: the first value counts.
func TestGatherHearsEveryRank(t *testing.T) {
	group := muxes(t, 3)
	for _, from := range []int{1, 1, 2} {
		group[from].Send(0, 1, Encode(from))
	}
	got, err := Gather(t.Context(), group[0], 1, 0)
	if err != nil || !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestValuesOfAnotherVersion checks that the error names the rank whose value has another type.
func TestValuesOfAnotherVersion(t *testing.T) {
	group := muxes(t, 2)
	group[1].Send(0, 1, Encode("text"))
	_, err := Gather(t.Context(), group[0], 1, 1.5)
	if other := (*VersionError)(nil); !errors.As(err, &other) || other.Rank != 1 {
		t.Error(err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("enough"))
	if _, err := Gather(ended, group[0], 2, 1.5); err == nil || err.Error() != "enough" {
		t.Error(err)
	}
}
