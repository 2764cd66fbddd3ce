package mpicache

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// The simulation of whole jobs: ranks, launcher, trainers, storage and network of one job, in one
// goroutine and in virtual time. All that happens, and when, follows from a seed. docs/develop.md
// says which parts of it are the code that runs in jobs, and which are models.

// simClock runs events one at a time, in order of their time.
type simClock struct {
	rng   *rand.Rand
	now   time.Duration
	queue simQueue
	last  uint64
	lanes map[any]time.Duration // by key: when the newest event that must happen in order is due
	trace simTrace
}

// simProcess is a process, of the job or of somebody else, that events happen in.
type simProcess struct {
	name    string
	dead    bool
	stopped bool     // as by SIGSTOP
	held    []func() // what happens when it runs again
}

type simEvent struct {
	at      time.Duration
	number  uint64
	process *simProcess // nil: it happens in any case
	what    string
	do      func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].number < q[j].number
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(e any)   { *q = append(*q, e.(simEvent)) }
func (q *simQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = simEvent{}
	*q = old[:len(old)-1]
	return e
}

func newSimClock(seed uint64, keep bool) *simClock {
	c := &simClock{rng: rand.New(rand.NewPCG(seed, 2)), lanes: map[any]time.Duration{}}
	c.trace = simTrace{clock: c, hash: xxh3.New(), keep: keep}
	return c
}

// after calls do in process p, after d, unless p is dead by then. A stopped process does it when it
// runs again.
func (c *simClock) after(d time.Duration, p *simProcess, what string, do func()) {
	c.last++
	heap.Push(&c.queue, simEvent{c.now + d, c.last, p, what, do})
}

// inOrder is after, but events with the same key, unless that is nil, happen in order.
func (c *simClock) inOrder(key any, d time.Duration, p *simProcess, what string, do func()) {
	if key == nil {
		c.after(d, p, what, do)
		return
	}
	at := max(c.now+d, c.lanes[key])
	c.lanes[key] = at
	c.after(at-c.now, p, what, do)
}

// step runs the next event, or returns false if none is left.
func (c *simClock) step() bool {
	if len(c.queue) == 0 {
		return false
	}
	e := heap.Pop(&c.queue).(simEvent)
	c.now = e.at
	c.run(e.process, e.what, e.do)
	return true
}

func (c *simClock) run(p *simProcess, what string, do func()) {
	switch {
	case p == nil:
		do()
	case p.dead:
	case p.stopped:
		p.held = append(p.held, func() { c.run(p, what, do) })
	default:
		if what != "" {
			c.trace.note(p.name, what)
		}
		do()
	}
}

// cont lets a stopped process run again.
func (c *simClock) cont(p *simProcess) {
	p.stopped = false
	held := p.held
	p.held = nil
	for _, do := range held {
		do()
	}
}

// upTo returns a random time, at most d.
func (c *simClock) upTo(d time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(d) + 1))
}

// chance is true once in oneIn times.
func (c *simClock) chance(oneIn int) bool { return oneIn > 0 && c.rng.IntN(oneIn) == 0 }

// simTrace is what happened: a hash of it, and the lines for people if they are kept.
type simTrace struct {
	clock *simClock
	hash  *xxh3.Hasher
	// replaces what differs in the texts from run to run
	differs *strings.Replacer
	keep    bool
	lines   []string
}

func (t *simTrace) note(who, what string, numbers ...int) {
	if t.differs != nil && strings.ContainsAny(what, "/0123456789") {
		what = t.differs.Replace(what)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(t.clock.now))
	_, _ = t.hash.Write(b[:])
	_, _ = t.hash.WriteString(who)
	_, _ = t.hash.WriteString(what)
	for _, n := range numbers {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		_, _ = t.hash.Write(b[:])
	}
	if t.keep {
		line := fmt.Sprintf("%12.6f  %-10s %s", t.clock.now.Seconds(), who, what)
		for _, n := range numbers {
			line += fmt.Sprint(" ", n)
		}
		t.lines = append(t.lines, line)
	}
}

// text returns what happened last, for people.
func (t *simTrace) text(lines int) string {
	return strings.Join(t.lines[max(0, len(t.lines)-lines):], "\n")
}
