package launch

import (
	"testing"
	"time"
)

// Ranks that answer often must not postpone the check that would find that another rank hangs.
func TestNextLookIsNeverPutOff(t *testing.T) {
	begun := time.Now()
	due := begun.Add(time.Second)
	for at := begun; at.Before(due); at = at.Add(100 * time.Millisecond) {
		if due = nextLook(due, at, time.Second); !due.Equal(begun.Add(time.Second)) {
			t.Fatalf("put off to %v after the begin", due.Sub(begun))
		}
	}
	if due = nextLook(due, begun, time.Millisecond); !due.Equal(begun.Add(time.Millisecond)) {
		t.Error("a dead cache is not restarted before the next look")
	}
}
