package mpicache

import (
	"math/rand/v2"
	"testing"
	"time"

	"rankpool/mpicache/transport"
)

// Neither the network nor the number of clients may change a training.

// slowLink is a rank's transport that delays each message by a random time, and keeps their order.
type slowLink struct {
	transport.Transport
	most time.Duration
}

// Start passes each message to a goroutine for its sender, which posts it again, to this rank
// itself: callbacks stay on one goroutine.
func (l slowLink) Start(handle func(from int, msg []byte)) {
	links := make([]chan []byte, l.Size())
	for from := range links {
		links[from] = make(chan []byte, 1<<16) // more than a test sends
		rng := rand.New(rand.NewPCG(uint64(l.Rank()), uint64(from)))
		go func() {
			for msg := range links[from] {
				time.Sleep(time.Duration(rng.Int64N(int64(l.most)))) // the wire
				l.Transport.Post(l.Rank(), msg)
			}
		}()
	}
	l.Transport.Start(func(from int, msg []byte) {
		if from == l.Rank() {
			handle(int(le.Uint32(msg)), msg[4:])
			return
		}
		links[from] <- append(u32s(uint32(from)), msg...)
	})
}

func (l slowLink) Post(to int, msg []byte) {
	if to == l.Rank() {
		msg = append(u32s(uint32(to)), msg...)
	}
	l.Transport.Post(to, msg)
}

// TestSlowLinks trains over links that delay each message by up to most, undisturbed and with ranks
// that are restarted.
func TestSlowLinks(t *testing.T) {
	const epochs = 3
	want := reference(t, epochs)
	for _, most := range []time.Duration{2 * time.Millisecond, 40 * time.Millisecond} {
		for _, n := range []struct{ ranks, world int }{{2, 2}, {3, 3}} {
			if testing.Short() && (n.ranks > 2 || most > 2*time.Millisecond) {
				continue
			}
			for name, at := range map[string]place{
				"undisturbed":    {-1, 0},
				"between epochs": {1, -1}, "in an epoch": {1, 7},
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					c := newCrew(t, n.ranks, n.world, 12,
						func(cfg *Config) { cfg.Transport = slowLink{cfg.Transport, most} })
					c.at[at] = func() { c.restart(nothing) }
					if err := c.train(place{}, place{epochs, 0}); err != nil {
						t.Fatal(err)
					}
					compareStreams(t, c.stream, want)
				})
			}
		}
	}
}

// TestTwoHundredTrainersComeAgain restarts a rank with two hundred trainers in mid-epoch: all
// reconnect at once, and resend their reports.
func TestTwoHundredTrainersComeAgain(t *testing.T) {
	const clients, epochs = 200, 3
	one := newCrew(t, 1, 1, clients, nil)
	many := newCrew(t, 1, clients, clients, nil)
	many.at[place{1, 0}] = func() { many.restart(nothing) }
	many.at[place{2, -1}] = func() { many.restart(nothing) }
	for _, c := range []*crew{one, many} {
		if err := c.train(place{}, place{epochs, 0}); err != nil {
			t.Fatal(err)
		}
	}
	compareStreams(t, many.stream, one.stream)
}
