package systems

import (
	"rankpool/scheduler/stager"
)

// lru evicts the least recently drawn resident and keeps every newcomer.
type lru struct {
	// a ring of the residents: entry 0 is its head, entry p+1 the resident in place p
	older, newer []stager.Place
}

func newLRU(PolicyConfig) stager.Policy {
	return &lru{older: make([]stager.Place, 1), newer: make([]stager.Place, 1)}
}

func (l *lru) Admit(p stager.Place, _ stager.Use) {
	for int(p)+1 >= len(l.older) {
		l.older, l.newer = append(l.older, 0), append(l.newer, 0)
	}
	i, newest := p+1, l.older[0]
	l.older[i], l.newer[i] = newest, 0
	l.newer[newest], l.older[0] = i, i
}

func (l *lru) Touch(p stager.Place, u stager.Use) {
	l.Remove(p)
	l.Admit(p, u)
}

func (l *lru) Refresh(stager.Place, stager.Use) {}

func (l *lru) Remove(p stager.Place) {
	older, newer := l.older[p+1], l.newer[p+1]
	l.newer[older], l.older[newer] = newer, older
}

func (l *lru) Victim() (stager.Place, bool) {
	oldest := l.newer[0]
	return oldest - 1, oldest != 0
}

func (l *lru) Yields(stager.Place, stager.Use) bool { return true }

var lruSystem = System{
	Name: "lru", Sampler: "torch", Policy: "lru", NewPolicy: newLRU,
	About:  "keeps every sample that is read, evicts the one drawn longest ago",
	Source: "baseline",
}
