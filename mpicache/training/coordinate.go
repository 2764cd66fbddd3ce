package training

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/message"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
	"rankpool/scheduler/systems"
)

// The data set's coordinator decides which training this is, when plans are made and who gets them.
// This file passes it events and executes its commands. Nothing here waits while the store is
// locked: plans are made, and files read and written, by goroutines that report their end as
// another event.

// request is an OPEN, PLAN or SAVE that has no reply yet. The coordinator knows it by its number.
type request struct {
	conn   Client
	kind   door.Kind
	ticket uint32
	err    error // why it was refused, if the coordinator refused it at once
}

// coordination returns what the coordinator's decisions depend on besides events.
func (s *Training) coordination() protocol.Config {
	cfg := s.rank
	return protocol.Config{
		Rank: cfg.Transport.Rank(), Ranks: cfg.Transport.Size(),
		Data: s.data.Name, Identity: s.data.Identity, Samples: s.data.Samples,
		Options: cfg.Options.String(), Scorer: cfg.Scorer,
		StatePath: s.states.userPath(), StateOptional: cfg.StateOptional,
		// of a training that begins; nil if the system learns nothing but scores
		Learner: func() protocol.Learner {
			l := s.setup.newLearner()
			if l == nil || s.setup.book == nil { // what the sampler returned is encoded
				return l
			}
			return onceLearner{l}
		},
	}
}

// onceLearner encodes what was learned only once, when the first goroutine needs it to make a plan
// or write a state.
type onceLearner struct{ protocol.Learner }

func (l onceLearner) Cut(scores []float32, accuracy float32) protocol.Learned {
	if learned := l.Learner.Cut(scores, accuracy); learned != nil {
		return sync.OnceValue(learned)
	}
	return nil
}

// Coordinate passes the coordinator an event, and executes its commands.
func (s *Training) Coordinate(e protocol.Event) {
	if !s.ended {
		s.coordinator.Step(e, s.command)
	}
}

// now returns the coordinator's time: how long the node has run.
func (s *Training) now() time.Duration { return s.rank.Now().Sub(s.rank.Started) }

// requests are those that have no reply yet, by number.
type requests struct {
	open map[uint64]*request
	last uint64
}

// register numbers a request.
func (q *requests) register(
	c Client, kind door.Kind, ticket uint32,
) (number uint64, r *request) {
	q.last++
	r = &request{conn: c, kind: kind, ticket: ticket}
	q.open[q.last] = r
	return q.last, r
}

// of returns how many requests of a kind from a client are pending.
func (q *requests) of(c Client, kind door.Kind) int {
	n := 0
	for _, r := range q.open {
		if r.conn == c && r.kind == kind {
			n++
		}
	}
	return n
}

// respond ends a request with a reply, which is sent after the store is unlocked.
func (s *Training) respond(number uint64, reply func(c Client, ticket uint32)) {
	r := s.requests.open[number]
	if r == nil {
		return
	}
	delete(s.requests.open, number)
	s.store.Later(func() { reply(r.conn, r.ticket) })
}

// Forget drops the pending requests of a client that has disconnected.
func (s *Training) Forget(c Client) {
	s.store.Locked(func() {
		delete(s.clients, c)
		for _, number := range slices.Sorted(maps.Keys(s.requests.open)) {
			if s.requests.open[number].conn == c {
				delete(s.requests.open, number)
				s.Coordinate(protocol.Canceled{Ticket: number})
			}
		}
	})
}

// Open handles the spec of a trainer here, whose client has opened some trainings already, by
// number. It returns the trainer's training.
func (s *Set) Open(
	c Client, opened map[uint32]*Training, spec protocol.Spec,
) (l *Training, err error) {
	s.store.Locked(func() {
		if l, err = s.admit(opened, spec.Job); err == nil {
			err = l.onOpen(c, spec)
		}
	})
	return l, err
}

func (s *Training) onOpen(c Client, spec protocol.Spec) error {
	e := protocol.Opened{Rank: s.rank.Transport.Rank(), Spec: spec}
	if err := s.checkSeat(c); err != nil {
		e.Taken = err.Error()
	}
	var r *request
	e.Ticket, r = s.requests.register(c, door.KindOpen, 0)
	s.Coordinate(e)
	if r.err == nil {
		s.clients[c] = true
	}
	return r.err
}

// Place answers PLAN when the plan exists, and SAVE when the state is on disk with the reports of
// all trainers from before the batch.
func (s *Training) Place(c Client, kind door.Kind, ticket uint32, p door.Place) (err error) {
	s.store.Locked(func() {
		if kind == door.KindPlan {
			err = s.checkPlan(c, p)
		} else {
			err = s.checkSave(c, p)
		}
		if err == nil {
			err = s.sit(c, true)
		}
		if err != nil {
			return
		}
		number, r := s.requests.register(c, kind, ticket)
		wanted := protocol.PlanWanted{
			Trainer: int(c.ID().Trainer), Epoch: int(p.Epoch), Batch: int(p.Batch), Ticket: number,
			Now: s.now(),
		}
		if kind == door.KindPlan {
			s.Coordinate(wanted)
		} else {
			s.Coordinate(protocol.SaveWanted(wanted))
		}
		err = r.err
	})
	return err
}

// Report handles a report of a trainer here.
func (s *Training) Report(c Client, f door.Report) (err error) {
	s.store.Locked(func() {
		if s.began && !s.coordinator.Weighted() {
			return
		}
		if err = s.checkReport(c, f); err == nil {
			err = s.sit(c, true)
		}
		if err != nil {
			return
		}
		s.Coordinate(protocol.Trained{
			Rank: s.rank.Transport.Rank(), Trainer: int(c.ID().Trainer), Epoch: int(f.Epoch),
			Batch: int(f.Batch), Losses: f.Losses, Embeddings: f.Embeddings,
		})
	})
	return err
}

// obey executes the coordinator's commands.
func (s *Training) obey(c protocol.Command) {
	switch c := c.(type) {
	case protocol.Accept:
		delete(s.requests.open, c.Ticket)
	case protocol.Refuse:
		s.refuse(c)
	case protocol.Begin:
		s.begin()
	case protocol.Tell:
		s.broadcast(c.Event)
	case protocol.Went:
		s.epochs.noteMoved()
	case protocol.MakePlan:
		s.makePlan(c)
	case protocol.Stage:
		measures := s.rank.Measures(int(s.rank.lanes.Load()))
		s.store.Step(stager.Planned{
			Lane: s.lane, Plan: c.Plan.Held(), From: c.From,
			Probe: s.benefit.Begin(c.Plan.Epoch, c.From, c.Plan.Batches(), measures),
		})
	case protocol.Rescore:
		s.store.Step(s.rescored(stager.Scored{
			Lane: s.lane, Epoch: c.Epoch, Batch: c.Batch, IDs: c.IDs, Scores: c.Scores,
			Total: c.Total, Known: c.Known,
		}))
	case protocol.Train:
		delete(s.epochs.closed, c.Epoch) // it may be trained again
		s.scores.record(c)
	case protocol.AnswerPlan:
		answer := c
		s.respond(c.Ticket, func(c Client, ticket uint32) {
			c.Stream(door.PlanFrame(ticket, answer.Plan, answer.Trainer, answer.Scores))
		})
	case protocol.AnswerSave:
		saved := door.Saved{Saved: c.Path, State: c.State}
		s.respond(c.Ticket, func(c Client, ticket uint32) {
			c.Write(door.AppendJSON(nil, door.KindSave.Reply(), ticket, saved))
		})
	case protocol.ReadStates:
		s.states.read(c.Stream)
	case protocol.KeepState:
		s.states.keep(c)
	case protocol.ForgetStates:
		s.states.inFolder(func() { s.states.forget(c.Before) })
	case protocol.SaveState:
		s.states.save(c)
	case protocol.Log:
		s.log(c)
	}
}

func (s *Training) refuse(c protocol.Refuse) {
	no := door.Error{Code: door.CodeRequest, Sentence: c.Why}
	if c.Retry {
		no.Code = door.CodeNotReady
	}
	if r := s.requests.open[c.Ticket]; r != nil && r.kind == door.KindOpen {
		delete(s.requests.open, c.Ticket)
		r.err = no
		return
	}
	s.respond(c.Ticket, func(c Client, ticket uint32) {
		c.Write(door.AppendError(nil, ticket, no))
	})
}

func (s *Training) log(c protocol.Log) {
	args := []any{"data", s.data.Name}
	if c.Rank >= 0 {
		args = append(args, "rank", c.Rank)
	}
	if c.Err != nil {
		args = append(args, "error", c.Err)
	}
	log := s.rank.Log
	write := map[protocol.LogLevel]func(string, ...any){
		protocol.LogInfo: log.Info, protocol.LogWarning: log.Warn, protocol.LogError: log.Error,
	}[c.Level]
	s.store.Later(func() { write(c.Text, args...) })
}

// begin opens the training's lane when every trainer has opened the data set.
func (s *Training) begin() {
	err := s.takeLane()
	s.Coordinate(protocol.Begun{
		Weighted: err == nil && s.plans.Sampler.Weighted(),
		Chooses:  err == nil && chooses(s.plans.Sampler), Err: err,
	})
}

// takeLane opens a lane in the data set's stager.
func (s *Training) takeLane() error {
	spec, t := s.coordinator.Spec(), s.rank.Transport
	assignment, err := spec.Assignment(s.rank.Assignment)
	if err != nil {
		return err
	}
	setup := &setup{
		rank: t.Rank(), ranks: t.Size(), world: s.coordinator.World(),
		sampler:    spec.SamplerConfig(s.data.Samples),
		assignment: assignment, policy: s.rank.Policy, values: s.rank.Options,
		book: s.book(spec), shared: s.job != "",
	}
	if draw.KindOf(spec.Sampler) == draw.Thrifty {
		setup.sampler.Room = systems.ShareOf(s.data.BookBytes, s.data.Samples, s.data.Size)
	}
	setup.values.Sample(&setup.sampler)
	if s.data.Pieces != nil {
		pieces := *s.data.Pieces // with the scores of this training
		setup.pieces = &pieces
	}
	plans, policy, err := setup.make()
	if err != nil {
		return err
	}
	s.setup, s.plans = setup, plans
	s.start(s.set.freeLane())
	if others := s.store.Open(s.lane, setup.world, policy); others {
		s.set.weigh()
	}
	return nil
}

// start gives the training its lane.
func (s *Training) start(lane int) {
	s.lane, s.began = lane, true
	s.rank.lanes.Add(1)
	here := 0
	for _, rank := range s.setup.world {
		if int(rank) == s.rank.Transport.Rank() {
			here++
		}
	}
	s.benefit = stager.NewBenefit(s.set.index+lane, here)
	s.set.weights[lane] = 1
}

// rescored returns the news of scores in terms of what memory holds. A piece is used when one of
// its samples is drawn, which plan.Pieces predicts by their scores; its own is always 1.
func (s *Training) rescored(e stager.Scored) stager.Scored {
	pieces := s.setup.pieces
	if pieces == nil {
		return e
	}
	if pieces.Scores == nil {
		s.setup.pieceScores = slices.Repeat([]float32{1}, pieces.Count)
	}
	pieces.Scores = e.Scores
	e.IDs, e.Scores = pieces.PiecesOf(e.IDs), s.setup.pieceScores
	e.Known = func(draw.SampleID) bool { return true }
	return e
}

// makePlan makes a plan without holding the lock.
func (s *Training) makePlan(c protocol.MakePlan) {
	cfg := s.plans
	tidy := func() { s.rank.tidy(cfg.Samples) }
	cfg.Drawn, cfg.Processes, cfg.Lists = tidy, c.Processes, c.Lists
	s.rank.Beside(nil, "make a plan", func() {
		s.rank.GiveWay()
		if err := systems.Prepare(cfg.Sampler, &c); err != nil {
			panic("mpicache: " + err.Error()) // the coordinator's learner has accepted it, or made it
		}
		tidy()
		e := protocol.PlanMade{Plan: plan.New(cfg, c.Epoch, c.Scores)}
		if cfg.Sampler.Weighted() {
			e.Scores = c.Digest()
		}
		s.store.Locked(func() {
			if !s.store.Closed() {
				s.Coordinate(e)
			}
		})
		tidy()
	})
}

// broadcast sends an event to all other ranks.
func (s *Training) broadcast(e protocol.Event) {
	switch e := e.(type) {
	case protocol.Opened:
		msg := s.About().Begin(message.Opened)
		message.ToOthers(s.rank.Transport, append(msg, message.JSON(e.Spec)...))
	case protocol.Saved:
		message.ToOthers(s.rank.Transport, append(s.About().Begin(message.Saved), message.JSON(e)...))
	case protocol.Sourced:
		message.ToOthers(s.rank.Transport, append(s.About().Begin(message.Source), message.JSON(e)...))
	case protocol.Listed:
		s.sendList(e)
	case protocol.Declined:
		message.ToOthers(s.rank.Transport, append(s.About().Begin(message.Refused), e.Why...))
	default:
		s.outbox.tell(e)
	}
}

// onOpened handles another rank's message that one of its trainers has opened the data set.
func (s *Set) onOpened(from int, about message.About, text []byte) {
	e := protocol.Opened{Rank: from}
	if err := json.Unmarshal(text, &e.Spec); err != nil {
		s.rank.Log.Error("malformed spec", "from", from, "error", err)
		return
	}
	s.store.Locked(func() {
		if !s.isCurrent(about.Job, about.Generation) {
			return // when the sender ends it, its trainers open the data set again
		}
		l, err := s.Join(about.Job)
		if err != nil {
			s.rank.Log.Error("a training of another rank is not served here", "from", from,
				"error", err)
			return
		}
		l.Coordinate(e)
	})
}

// receive passes the coordinator an event that another rank has sent as JSON.
func receive[E protocol.Event](s *Training, from int, text []byte) {
	var e E
	if err := json.Unmarshal(text, &e); err != nil {
		s.rank.Log.Error("malformed message", "from", from, "error", err)
		return
	}
	s.store.Locked(func() { s.Coordinate(e) })
}

// ScorerFor returns the scorer that a spec's draws depend on, "" if they depend on no scores.
func (s *Training) ScorerFor(spec protocol.Spec) string {
	sampler, err := s.rank.System.NewSampler(spec.SamplerConfig(s.data.Samples))
	if err != nil || !sampler.Weighted() {
		return ""
	}
	if s.rank.Scorer != "" {
		return s.rank.Scorer
	}
	return protocol.DefaultScorer(spec.Sampler)
}
