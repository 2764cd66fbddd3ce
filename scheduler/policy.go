package scheduler

import "fmt"

// A Policy orders the residents of one partition. It owns no bytes, no locks and no counters: Cache does.
//
// next is the time of a sample's next draw, in epochs (epoch + fraction), exact inside the planned epoch and
// predicted beyond it; a policy that does not look ahead ignores it.
type Policy interface {
	// Admit makes id a resident. id must not be one.
	Admit(id SampleID, next float64)
	// Touch records a draw of resident id.
	Touch(id SampleID, next float64)
	// Refresh replaces the prediction of resident id without a draw.
	Refresh(id SampleID, next float64)
	// Next returns the prediction that resident id is ordered by.
	Next(id SampleID) float64
	// Remove takes resident id out.
	Remove(id SampleID)
	// Victim returns the resident that goes first, or false when there is none.
	Victim() (SampleID, bool)
	// Yields reports whether victim makes room for a newcomer that is drawn again at next.
	Yields(victim SampleID, next float64) bool
}

// Policies lists the names that NewPolicy knows.
var Policies = []string{"clairvoyant", "lru"}

// NewPolicy returns the named policy over samples 0 … samples-1, without residents.
func NewPolicy(name string, samples int) (Policy, error) {
	switch name {
	case "clairvoyant":
		return newClairvoyant(samples), nil
	case "lru":
		return newLRU(samples), nil
	}
	return nil, fmt.Errorf("scheduler: no policy %q; there are %v", name, Policies)
}
