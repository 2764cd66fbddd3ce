package training

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/message"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/store"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// Several trainings may use a data set at the same time: one without a job name, the others each
// with its own. Each has its own coordinator, counts and state, and a lane in the
// data set's stager.

const (
	// MaxJobs is how many trainings with names a rank admits for a data set at a time.
	MaxJobs = 64
	// jobBits is the position of the job in a training's number: below it is the data set.
	jobBits, jobsMask = 8, 1<<23 - 1
)

// jobNames matches the names that a training may have: they become part of file names.
var jobNames = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// JobNames describes the names that a training may have, for messages.
const JobNames = "1 to 64 letters, digits, dots, dashes and underscores, the first no dot or dash"

// IsJobName reports whether a training may have that name.
func IsJobName(name string) bool { return jobNames.MatchString(name) }

// Number is the training's number at the door. It is derived from the name, so that it is the same
// on all ranks, and after a restart. Two trainings may have the same number, but not on one
// connection.
func (s *Training) Number() uint32 { return streamNumber(s.set.index, s.job) }

func streamNumber(index int, job string) uint32 {
	if job == "" {
		return uint32(index)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(job)) // a hash never returns an error
	return uint32(index) | max(h.Sum32()&jobsMask, 1)<<jobBits
}

// Set is the trainings on a data set: one without a job name, the others each with its own. The
// lock of the store protects everything in it.
type Set struct {
	rank  *Rank
	index int // the data set's number
	data  *store.DataSet
	store *store.Store

	list []*Training  // the first one is that of the training without a job name
	gone stats.Counts // what ended trainings have counted
	// by job name: how many trainings of that name have ended
	generations map[string]uint32

	gets    map[uint64]pendingGet // by ticket
	batch   []door.BatchEntry     // a buffer for the delivery under way
	weights map[int]float64       // by lane, what memory is worth to it
	largest int64                 // bytes of a sample
}

func newSet(rank *Rank, index int, data *store.DataSet) *Set {
	s := &Set{
		rank: rank, index: index, data: data, generations: map[string]uint32{},
		gets: map[uint64]pendingGet{}, weights: map[int]float64{},
		store: store.New(rank.Rank, index, data),
	}
	for id := range draw.SampleID(data.Held()) {
		s.largest = max(s.largest, data.Size(id))
	}
	s.list = []*Training{newTraining(s, "")}
	s.store.Serve(s)
	return s
}

// Store returns the store that the trainings share.
func (s *Set) Store() *store.Store { return s.store }

// Data returns the data set.
func (s *Set) Data() *store.DataSet { return s.data }

// Tick does the periodic work that is due. It takes the lock.
func (s *Set) Tick(now time.Time) {
	s.store.Locked(func() {
		for _, l := range slices.Clone(s.list) {
			l.outbox.flush()
			l.Coordinate(protocol.Ticked{Now: now.Sub(s.rank.Started)})
			l.lookIdle(now)
		}
		if !s.store.Tick(now) {
			return
		}
		for _, l := range s.list {
			l.epochs.closeLeft(now)
		}
	})
}

// Pending returns how many GETs, and how many other requests of clients, have no reply yet.
func (s *Set) Pending() (gets, others int) {
	for _, l := range s.list {
		others += len(l.requests.open) + len(l.due)
	}
	return len(s.gets), others
}

// Lane implements store.Trainings.
func (s *Set) Lane(about message.About) (lane int, ok bool) {
	current := s.isCurrent(about.Job, about.Generation)
	l := s.Find(about.Job)
	if !current || l == nil || !l.began {
		return 0, false
	}
	return l.lane, true
}

// About implements store.Trainings.
func (s *Set) About(lane int) message.About { return s.inLaneOf(lane).About() }

// Timed implements store.Trainings.
func (s *Set) Timed(c stager.Timed) { s.inLaneOf(c.Lane).timed(c) }

// Stepped implements store.Trainings.
func (s *Set) Stepped() {
	for _, l := range s.list {
		l.leavePlans()
	}
}

// Find returns the training with a job name, or nil if there is none.
func (s *Set) Find(job string) *Training {
	for _, l := range s.list {
		if l.job == job {
			return l
		}
	}
	return nil
}

// admit returns the training that a client of this rank opens. Only admit limits how
// many there are: a rank that refused a training that another rank has admitted would leave its
// trainers waiting for a plan.
func (s *Set) admit(opened map[uint32]*Training, job string) (*Training, error) {
	switch other := opened[streamNumber(s.index, job)]; {
	case other != nil && other.job != job:
		return nil, door.Refuse("job %s has the number of job %s, which this connection has opened: "+
			"give it another name", job, other.job)
	case s.Find(job) == nil && len(s.list) > MaxJobs:
		return nil, door.Refuse("%d trainings use data set %s: one more is too many", MaxJobs,
			s.data.Name)
	}
	return s.Join(job)
}

// Join returns the training, and creates it if there is none.
func (s *Set) Join(job string) (*Training, error) {
	if l := s.Find(job); l != nil {
		return l, nil
	}
	if !jobNames.MatchString(job) {
		return nil, door.Refuse("a job name must be %s, not %q", JobNames, job)
	}
	l := newTraining(s, job)
	l.generation = s.generations[job]
	s.list = append(s.list, l)
	return l, nil
}

// inLaneOf returns the training that has a lane; nil if it is free.
func (s *Set) inLaneOf(lane int) *Training {
	for _, l := range s.list {
		if l.began && l.lane == lane {
			return l
		}
	}
	return nil
}

// freeLane returns the lowest number that no open lane has.
func (s *Set) freeLane() int {
	lane := 0
	for s.inLaneOf(lane) != nil {
		lane++
	}
	return lane
}

// About returns what messages to other ranks call the training.
func (s *Training) About() message.About {
	return message.About{Set: s.set.index, Job: s.job, Generation: s.generation}
}

// isCurrent reports whether a message is about the training that this rank serves, or will serve,
// under that name. Trainings that have the same name, one after the other, differ in their
// generation: how many of that name have ended before. Rank 0 decides when one ends: a rank that
// does not know yet may still send messages about the old training, and one that knows may already
// send messages about the next.
func (s *Set) isCurrent(job string, generation uint32) bool {
	if job == "" {
		return true
	}
	if generation > s.generations[job] { // rank 0's message is on its way
		if l := s.Find(job); l != nil {
			l.End()
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
func (s *Training) lookIdle(now time.Time) {
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
	if !s.idle && now.Sub(s.idleSince) >= cmp.Or(s.rank.JobIdle, usualJobIdle) {
		s.idle = true
		s.epochs.closeAll()
		s.tellIdle(isEmpty)
	}
}

func (s *Training) tellIdle(what byte) {
	if t := s.rank.Transport; t.Rank() != 0 {
		t.Post(0, append(s.About().Begin(message.Idle), what))
		return
	}
	s.hearIdle(0, what)
}

func (s *Training) hearIdle(from int, what byte) {
	switch what {
	case isOver:
		s.End()
	case isUsed:
		delete(s.idleAt, from)
	case isEmpty:
		s.idleAt[from] = true
		if len(s.idleAt) == s.rank.Transport.Size() {
			message.ToOthers(s.rank.Transport, append(s.About().Begin(message.Idle), isOver))
			s.End()
		}
	}
}

// End releases the training.
func (s *Training) End() {
	s.rank.Log.Info("a training has ended", "data", s.data.Name, "job", s.job)
	s.Coordinate(protocol.Finished{})
	s.ended = true
	s.set.generations[s.job] = s.generation + 1
	maps.DeleteFunc(s.set.gets, func(_ uint64, g pendingGet) bool { return g.of == s })
	s.set.gone.Add(s.epochs.total())
	s.set.list = slices.DeleteFunc(s.set.list, func(l *Training) bool { return l == s })
	if s.began {
		s.rank.lanes.Add(-1)
		s.store.Step(stager.LaneClosed{Lane: s.lane})
		s.set.weigh()
	}
	for c := range s.clients {
		c.HangUp() // the client opens the data set again
	}
	s.rank.seatsChanged.Store(true)
	close(s.over)
}

// Key names a training on a data set; its text is part of the names of files.
type Key struct {
	Set int
	Job string
}

// Key returns what names the training.
func (s *Training) Key() Key { return Key{s.set.index, s.job} }

func (k Key) String() string {
	if k.Job == "" {
		return strconv.Itoa(k.Set)
	}
	return fmt.Sprintf("%d@%s", k.Set, k.Job)
}

// OnMessage handles another rank's message about a training. It takes the lock.
func (s *Set) OnMessage(from int, kind byte, about message.About, body []byte) {
	if kind == message.Opened {
		s.onOpened(from, about, body)
		return
	}
	var l *Training
	s.store.Locked(func() {
		if s.isCurrent(about.Job, about.Generation) {
			l = s.Find(about.Job)
		}
	})
	if l != nil { // nil: the training has ended here
		l.onMessage(kind, from, body)
	}
}

// onMessage handles a message about the training.
func (s *Training) onMessage(kind byte, from int, body []byte) {
	switch kind {
	case message.Reports:
		s.outbox.receive(from, body)
	case message.List:
		s.onList(from, body)
	case message.Source:
		receive[protocol.Sourced](s, from, body)
	case message.Saved:
		receive[protocol.Saved](s, from, body)
	case message.Refused: // then trainers here get no plan, either
		s.store.Locked(func() { s.Coordinate(protocol.Declined{Rank: from, Why: string(body)}) })
	case message.Idle:
		if len(body) == 1 {
			s.store.Locked(func() { s.hearIdle(from, body[0]) })
		}
	case message.Count:
		s.epochs.receive(from, body)
	}
}
