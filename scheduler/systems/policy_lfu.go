package systems

import (
	"rankpool/scheduler/stager"
)

// lfu evicts the resident with the fewest draws since it was admitted, in a tie the one admitted
// first. It keeps every newcomer.
type lfu struct {
	queue *heap
	draws []int64 // by place
	came  []int64 // by place: the number of earlier admissions
	count int64
}

func newLFU(PolicyConfig) stager.Policy {
	l := &lfu{}
	l.queue = newHeap(func(a, b stager.Place) bool {
		if l.draws[a] != l.draws[b] {
			return l.draws[a] < l.draws[b]
		}
		return l.came[a] < l.came[b]
	})
	return l
}

func (l *lfu) Admit(p stager.Place, _ stager.Use) {
	for int(p) >= len(l.draws) {
		l.draws, l.came = append(l.draws, 0), append(l.came, 0)
	}
	l.draws[p], l.came[p] = 1, l.count
	l.count++
	l.queue.Push(p)
}

func (l *lfu) Touch(p stager.Place, _ stager.Use) {
	l.draws[p]++
	l.queue.Fix(p)
}

func (l *lfu) Refresh(stager.Place, stager.Use) {}

func (l *lfu) Remove(p stager.Place) { l.queue.Remove(p) }

func (l *lfu) Victim() (stager.Place, bool) { return l.queue.Min() }

func (l *lfu) Yields(stager.Place, stager.Use) bool { return true }

var lfuSystem = System{
	Name: "lfu", Sampler: "torch", Policy: "lfu", NewPolicy: newLFU,
	About: "keeps every sample that is read, evicts the one with the fewest draws since it came " +
		"in",
	Source: "baseline",
}

var ilfuSystem = System{
	Name: "ilfu", Scorer: "loss", Sampler: "selective", Policy: "lfu", NewPolicy: newLFU,
	NewPool: newSelectivePool,
	About:   "iCACHE's choice of samples in front of lfu",
	Source:  "Chen et al., iCACHE, HPCA 2023, §V-A (iLFU)",
	Options: selectiveOptions,
}
