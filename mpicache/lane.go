package mpicache

import (
	"cmp"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"time"

	"rankpool/mpicache/door"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// Several trainings may use a data set at the same time: one without a job name, the others each
// with its own. Each is a stream, with its own coordinator, counts and state, and a lane in the
// data set's stager.

const (
	// maxJobs is how many trainings with names a rank admits for a data set at a time.
	maxJobs = 64
	// jobBits is the position of the job in a stream's number: below it is the data set.
	jobBits, jobsMask = 8, 1<<23 - 1
)

// jobNames matches the names that a training may have: they become part of file names.
var jobNames = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// JobNames describes the names that a training may have, for messages.
const JobNames = "1 to 64 letters, digits, dots, dashes and underscores, the first no dot or dash"

// IsJobName reports whether a training may have that name.
func IsJobName(name string) bool { return jobNames.MatchString(name) }

// number is the stream's number at the door. It is derived from the name, so that it is the same on
// all ranks, and after a restart. Two streams may have the same number, but not on one connection.
func (s *stream) number() uint32 { return streamNumber(s.index, s.job) }

func streamNumber(index int, job string) uint32 {
	if job == "" {
		return uint32(index)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(job)) // a hash never returns an error
	return uint32(index) | max(h.Sum32()&jobsMask, 1)<<jobBits
}

// of returns the stream of a training, or nil if there is none.
func (s *samples) of(job string) *stream {
	for _, l := range s.streams {
		if l.job == job {
			return l
		}
	}
	return nil
}

// admit returns the stream of a training that a client of this rank opens. Only admit limits how
// many there are: a rank that refused a training that another rank has admitted would leave its
// trainers waiting for a plan.
func (s *samples) admit(c *conn, job string) (*stream, error) {
	switch other := c.streams[streamNumber(s.index, job)]; {
	case other != nil && other.job != job:
		return nil, door.Refuse("job %s has the number of job %s, which this connection has opened: "+
			"give it another name", job, other.job)
	case s.of(job) == nil && len(s.streams) > maxJobs:
		return nil, door.Refuse("%d trainings use data set %s: one more is too many", maxJobs,
			s.data.Name)
	}
	return s.join(job)
}

// join returns the stream of a training, and creates it if there is none.
func (s *samples) join(job string) (*stream, error) {
	if l := s.of(job); l != nil {
		return l, nil
	}
	switch system := s.node.cfg.system(); {
	case !jobNames.MatchString(job):
		return nil, door.Refuse("a job name must be %s, not %q", JobNames, job)
	case system.Draws():
		return nil, door.Refuse("--system %s serves one training at a time: leave the job name out",
			system.Name)
	}
	l := newStream(s, job)
	l.generation = s.generations[job]
	s.streams = append(s.streams, l)
	return l, nil
}

// inLaneOf returns the stream that has a lane; nil if it is free.
func (s *samples) inLaneOf(lane int) *stream {
	for _, l := range s.streams {
		if l.began && l.lane == lane {
			return l
		}
	}
	return nil
}

// all returns the streams of all data sets.
func (n *Node) all() []*stream {
	var all []*stream
	for _, s := range n.streams {
		s.locked(func() { all = append(all, s.streams...) })
	}
	return all
}

// freeLane returns the lowest number that no open lane has.
func (s *samples) freeLane() int {
	lane := 0
	for s.inLaneOf(lane) != nil {
		lane++
	}
	return lane
}

// message begins a message about the training to another rank: its kind, the data set's number, the
// job's name after its length and, if it has one, the training's generation.
func (s *stream) message(kind byte) []byte {
	msg := append([]byte{kind, byte(s.index), byte(len(s.job))}, s.job...)
	if s.job != "" {
		msg = le.AppendUint32(msg, s.generation)
	}
	return msg
}

// message begins a message about the data set.
func (s *samples) message(kind byte) []byte { return []byte{kind, byte(s.index), 0} }

// isCurrent reports whether a message is about the training that this rank serves, or will serve,
// under that name. Trainings that have the same name, one after the other, differ in their
// generation: how many of that name have ended before. Rank 0 decides when one ends: a rank that
// does not know yet may still send messages about the old training, and one that knows may already
// send messages about the next.
func (s *samples) isCurrent(job string, generation uint32) bool {
	if job == "" {
		return true
	}
	if generation > s.generations[job] { // rank 0's message is on its way
		if l := s.of(job); l != nil {
			l.end()
		}
		s.generations[job] = generation
	}
	return generation == s.generations[job]
}

// A training with a job name ends when it has had no process on any rank for a while: then its name
// can be reused, and its samples are evicted unless other trainings use them. Each rank reports to
// rank 0 when it has no process of the training, or has one again; rank 0 ends the training on all
// ranks.

const (
	isEmpty = byte(iota)
	isUsed
	isOver
)

// usualJobIdle is longer than torchrun takes to restart processes.
const usualJobIdle = 10 * time.Second

// lookIdle notes whether the training has processes here.
func (s *stream) lookIdle(now time.Time) {
	if s.job == "" {
		return
	}
	if len(s.clients) > 0 || s.livesHere() {
		s.idleSince = time.Time{}
		if s.idle {
			s.idle = false
			s.tellIdle(isUsed)
		}
		return
	}
	if s.idleSince.IsZero() {
		s.idleSince = now
	}
	if !s.idle && now.Sub(s.idleSince) >= cmp.Or(s.node.cfg.JobIdle, usualJobIdle) {
		s.idle = true
		for _, e := range slices.Sorted(maps.Keys(s.epochs)) {
			s.closeEpoch(e)
		}
		s.tellIdle(isEmpty)
	}
}

func (s *stream) tellIdle(what byte) {
	if t := s.node.cfg.Transport; t.Rank() != 0 {
		t.Post(0, append(s.message(messageIdle), what))
		return
	}
	s.hearIdle(0, what)
}

// onIdle handles another rank's messageIdle.
func (s *stream) onIdle(from int, body []byte) {
	if len(body) == 1 {
		s.locked(func() { s.hearIdle(from, body[0]) })
	}
}

func (s *stream) hearIdle(from int, what byte) {
	switch what {
	case isOver:
		s.end()
	case isUsed:
		delete(s.idleAt, from)
	case isEmpty:
		s.idleAt[from] = true
		if len(s.idleAt) == s.node.cfg.Transport.Size() {
			s.node.toPeers(append(s.message(messageIdle), isOver))
			s.end()
		}
	}
}

// end releases the training.
func (s *stream) end() {
	s.node.cfg.Log.Info("a training has ended", "data", s.data.Name, "job", s.job)
	s.coordinate(protocol.Finished{})
	s.ended = true
	s.generations[s.job] = s.generation + 1
	maps.DeleteFunc(s.gets, func(_ uint64, g pendingGet) bool { return g.stream == s })
	for e := range s.epochs {
		s.addEpoch(&s.past, e)
	}
	s.gone.Add(s.past)
	s.streams = slices.DeleteFunc(s.streams, func(l *stream) bool { return l == s })
	if s.began {
		s.node.lanes.Add(-1)
		s.step(stager.LaneClosed{Lane: s.lane})
		s.weigh()
	}
	for c := range s.clients {
		c.HangUp() // the client opens the data set again
	}
	s.node.seatsChanged.Store(true)
	close(s.over)
}
