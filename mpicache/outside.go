package mpicache

import "time"

// outside is what a node needs of the world besides its transport, storage and files. The
// simulation of whole jobs has another one, in virtual time.
type outside interface {
	now() time.Time
	// beside runs f beside the caller, which may hold a lock. Those with the same key are begun in
	// order; with nil, in any.
	beside(key any, what string, f func())
}

// realWorld has clocks and goroutines.
type realWorld struct{}

func (realWorld) now() time.Time                   { return time.Now() }
func (realWorld) beside(_ any, _ string, f func()) { go f() }
