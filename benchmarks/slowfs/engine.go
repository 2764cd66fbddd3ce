package slowfs

import (
	"sync"
	"syscall"
	"time"
)

// Engine decides when each access is answered and whether it fails, and counts accesses.
//
// It is pure: callers pass the time since its start, which must not go back by more than accesses
// overlap. The same calls in the same order get the same answers. It is safe for concurrent use.
type Engine struct {
	config Config
	rules  []*rule

	mu      sync.Mutex
	whole   pipe
	opens   pipe
	targets []pipe
	count   Stats
	files   map[string]*fileCount
}

// Verdict is the outcome of an access.
type Verdict struct {
	Due time.Duration // when it is answered
	Err syscall.Errno // the error; 0: none
}

// NewEngine returns an engine at time 0. It panics if config.Check fails; callers should check
// first.
func NewEngine(config Config) *Engine {
	if err := config.Check(); err != nil {
		panic("slowfs: NewEngine with a config that Check refuses: " + err.Error())
	}
	config.Targets = max(1, config.Targets)
	e := &Engine{config: config}
	e.whole.perSecond = float64(config.Bandwidth)
	e.opens.perSecond = config.OpenRate
	e.targets = make([]pipe, config.Targets)
	for t := range e.targets {
		e.targets[t].perSecond = float64(config.TargetBandwidth)
	}
	for i, r := range config.Rules {
		e.rules = append(e.rules, newRule(r, i, config.Seed))
	}
	e.resetCounters()
	return e
}

// Open decides an open of the file at path, below the root.
func (e *Engine) Open(now time.Duration, path string) Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count.Opens++
	e.file(path).Opens++
	v := e.obey(access{op: Open, path: path, now: now})
	v.Due += e.opens.take(now, 1) + e.config.OpenLatency
	return v
}

// Read decides a read of sizeBytes bytes at offset of the file at path; the caller has cut it at
// the end of the file. A read of 0 bytes is free: the client of a parallel file system knows
// where a file ends.
func (e *Engine) Read(now time.Duration, path string, offset, sizeBytes int64) Verdict {
	if sizeBytes <= 0 {
		return Verdict{Due: now}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	pieces := e.pieces(path, offset, sizeBytes)
	touched := make([]int, len(pieces))
	for i, p := range pieces {
		touched[i] = p.target
	}
	v := e.obey(access{op: Read, path: path, targets: touched, now: now})
	e.countRead(now, path, offset, sizeBytes, pieces, v.Err != 0)
	served := now
	if v.Err == 0 {
		served = e.whole.take(now, sizeBytes)
		for _, p := range pieces {
			served = max(served, e.targets[p.target].take(now, p.sizeBytes))
		}
	}
	v.Due += served + e.config.ReadLatency
	e.count.LastRead = max(e.count.LastRead, v.Due)
	return v
}

// List decides a listing of entries > 0 entries of the folder at path.
func (e *Engine) List(now time.Duration, path string, entries int64) Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count.Entries += entries
	v := e.obey(access{op: List, path: path, now: now})
	v.Due += now + time.Duration(entries)*e.config.EntryLatency
	return v
}

// Stat decides a lookup of the name or the attributes of path.
func (e *Engine) Stat(now time.Duration, path string) Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count.Stats++
	v := e.obey(access{op: Stat, path: path, now: now})
	v.Due += now + e.config.StatLatency
	return v
}

// obey applies the rules. Due is only the time that they add. e.mu must be held.
func (e *Engine) obey(a access) (v Verdict) {
	for _, r := range e.rules {
		if !r.hits(a) {
			continue
		}
		if r.Stall > 0 {
			v.Due += r.Stall
			e.count.Stalls++
		}
		if v.Err == 0 && r.errno != 0 {
			v.Err = r.errno
			e.count.Errors++
		}
	}
	return v
}

// Target returns the target of the byte at offset of the file at path, from 0.
func (e *Engine) Target(path string, offset int64) int {
	first := hash(path)
	if e.config.Stripe > 0 {
		first += uint64(offset / int64(e.config.Stripe))
	}
	return int(first % uint64(len(e.targets)))
}

// piece is the part of a read that one target serves.
type piece struct {
	target    int
	sizeBytes int64
}

// pieces cuts a read at stripes; there is at most one piece per target.
func (e *Engine) pieces(path string, offset, sizeBytes int64) []piece {
	stripe := int64(e.config.Stripe)
	if stripe == 0 || len(e.targets) == 1 {
		return []piece{{e.Target(path, offset), sizeBytes}}
	}
	var pieces []piece
	at := make(map[int]int)
	for end := offset + sizeBytes; offset < end; {
		n := min(stripe-offset%stripe, end-offset)
		t := e.Target(path, offset)
		if i, ok := at[t]; ok {
			pieces[i].sizeBytes += n
		} else {
			at[t] = len(pieces)
			pieces = append(pieces, piece{t, n})
		}
		offset += n
	}
	return pieces
}

// pipe serves requests at a rate, in order.
type pipe struct {
	perSecond float64       // 0: at once
	free      time.Duration // when it will have served everything
}

// take returns when an amount requested now will have been served.
func (p *pipe) take(now time.Duration, amount int64) time.Duration {
	if p.perSecond == 0 {
		return now
	}
	p.free = max(p.free, now) + time.Duration(float64(amount)/p.perSecond*float64(time.Second))
	return p.free
}
