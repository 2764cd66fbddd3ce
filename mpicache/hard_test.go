package mpicache

import (
	"slices"
	"testing"
)

// TestTwoHundredTrainersComeAgain restarts a rank with two hundred trainers in mid-epoch: all
// reconnect at once, and resend their reports.
func TestTwoHundredTrainersComeAgain(t *testing.T) {
	const clients, epochs = 200, 3
	one := newCrew(t, 1, 1, clients, nil)
	many := newCrew(t, 1, clients, clients, nil)
	many.at[place{1, 0}] = func() { many.restart(many) }
	many.at[place{2, -1}] = func() { many.restart(many) }
	for _, c := range []*crew{one, many} {
		if err := c.train(place{}, place{epochs, 0}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(many.stream, one.stream) {
		t.Error("two hundred trainers draw other samples than one")
	}
}
