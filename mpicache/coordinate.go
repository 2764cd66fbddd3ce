package mpicache

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/fields"
	"rankpool/mpicache/slab"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// The data set's coordinator decides which training this is, when plans are made and who gets them.
// This file passes it events and executes its commands. Nothing here waits while the stream is
// locked: plans are made, and files read and written, by goroutines that report their end as
// another event.

// request is an OPEN, PLAN or SAVE that has no reply yet. The coordinator knows it by its number.
type request struct {
	conn   *conn
	kind   door.Kind
	ticket uint32
	err    error // why it was refused, if the coordinator refused it at once
}

// coordination returns what the coordinator's decisions depend on besides events.
func (s *stream) coordination() protocol.Config {
	cfg := &s.node.cfg
	return protocol.Config{
		Rank: cfg.Transport.Rank(), Ranks: cfg.Transport.Size(),
		Data: s.data.Name, Identity: s.data.Identity, Samples: s.data.Samples,
		Options: cfg.Options.String(), Scorer: cfg.Scorer,
		StatePath: s.userStatePath(), StateOptional: cfg.StateOptional,
		Learner: s.newLearner,
	}
}

// newLearner returns the learner for a training that begins, or nil if the system learns nothing
// but scores.
func (s *stream) newLearner() protocol.Learner {
	if l := s.setup.newLearner(); l != nil {
		return onceLearner{l}
	}
	return nil
}

// onceLearner encodes what was learned only once, when the first goroutine needs it to make a plan
// or write a state.
type onceLearner struct{ protocol.Learner }

func (l onceLearner) Cut(scores []float32) protocol.Learned {
	if learned := l.Learner.Cut(scores); learned != nil {
		return sync.OnceValue(learned)
	}
	return nil
}

// coordinate passes the coordinator an event, executes its commands, and handles the events that
// follow from them.
func (s *stream) coordinate(e protocol.Event) {
	if s.ended {
		return
	}
	s.events = append(s.events, e)
	if s.coordinating {
		return
	}
	s.coordinating = true
	for len(s.events) > 0 {
		e := s.events[0]
		s.events = s.events[1:]
		s.coordinator.Step(e, s.command)
	}
	s.events, s.coordinating = nil, false
}

// now returns the coordinator's time: how long the node has run.
func (s *stream) now() time.Duration { return s.node.now().Sub(s.node.started) }

// register numbers a request.
func (s *stream) register(c *conn, kind door.Kind, ticket uint32) (number uint64, r *request) {
	s.lastRequest++
	r = &request{conn: c, kind: kind, ticket: ticket}
	s.requests[s.lastRequest] = r
	return s.lastRequest, r
}

// requested returns how many requests of a kind from a client are pending.
func (s *stream) requested(c *conn, kind door.Kind) int {
	n := 0
	for _, r := range s.requests {
		if r.conn == c && r.kind == kind {
			n++
		}
	}
	return n
}

// respond ends a request with a reply, which is sent after the stream is unlocked.
func (s *stream) respond(number uint64, reply func(c *conn, ticket uint32)) {
	r := s.requests[number]
	if r == nil {
		return
	}
	delete(s.requests, number)
	s.later(func() { reply(r.conn, r.ticket) })
}

// forget drops the pending requests of a client that has disconnected.
func (s *stream) forget(c *conn) {
	s.locked(func() {
		delete(s.clients, c)
		for _, number := range slices.Sorted(maps.Keys(s.requests)) {
			if s.requests[number].conn == c {
				delete(s.requests, number)
				s.coordinate(protocol.Canceled{Ticket: number})
			}
		}
	})
}

// onOpen handles the spec of a trainer here, and returns the stream of its training.
func (s *samples) onOpen(c *conn, spec protocol.Spec) (l *stream, err error) {
	s.locked(func() {
		if l, err = s.admit(c, spec.Job); err == nil {
			err = l.onOpen(c, spec)
		}
	})
	return l, err
}

func (s *stream) onOpen(c *conn, spec protocol.Spec) error {
	s.forgetBefore()
	e := protocol.Opened{Rank: s.node.cfg.Transport.Rank(), Spec: spec}
	if err := s.checkSeat(c); err != nil {
		e.Taken = err.Error()
	}
	var r *request
	e.Ticket, r = s.register(c, door.KindOpen, 0)
	s.coordinate(e)
	if r.err == nil {
		s.clients[c] = true
	}
	return r.err
}

// onPlace answers PLAN when the plan exists, and SAVE when the state is on disk with the reports of
// all trainers from before the batch.
func (s *stream) onPlace(c *conn, kind door.Kind, ticket uint32, p door.Place) (err error) {
	s.locked(func() {
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
		number, r := s.register(c, kind, ticket)
		wanted := protocol.PlanWanted{
			Trainer: int(c.Trainer), Epoch: int(p.Epoch), Batch: int(p.Batch), Ticket: number,
			Now: s.now(),
		}
		if kind == door.KindPlan {
			s.coordinate(wanted)
		} else {
			s.coordinate(protocol.SaveWanted(wanted))
		}
		err = r.err
	})
	return err
}

// onReport handles a report of a trainer here.
func (s *stream) onReport(c *conn, f door.Report) (err error) {
	s.locked(func() {
		if s.began && !s.coordinator.Weighted() {
			return
		}
		if err = s.checkReport(c, f); err == nil {
			err = s.sit(c, true)
		}
		if err != nil {
			return
		}
		s.coordinate(protocol.Trained{
			Rank: s.node.cfg.Transport.Rank(), Trainer: int(c.Trainer), Epoch: int(f.Epoch),
			Batch: int(f.Batch), Losses: f.Losses, Embeddings: f.Embeddings,
		})
	})
	return err
}

// obey executes the coordinator's commands.
func (s *stream) obey(c protocol.Command) {
	switch c := c.(type) {
	case protocol.Accept:
		delete(s.requests, c.Ticket)
	case protocol.Refuse:
		s.refuse(c)
	case protocol.Begin:
		s.begin()
	case protocol.Tell:
		s.broadcast(c.Event)
	case protocol.Went:
		s.noteMoved()
	case protocol.MakePlan:
		s.makePlan(c)
	case protocol.Stage:
		s.step(stager.Planned{
			Lane: s.lane, Plan: c.Plan, From: c.From,
			Probe: s.benefit.Begin(c.Plan.Epoch, c.From, c.Plan.Batches(), s.node.measures()),
		})
	case protocol.Rescore:
		s.step(stager.Scored{
			Lane: s.lane, Epoch: c.Epoch, Batch: c.Batch, IDs: c.IDs, Scores: c.Scores,
			Total: c.Total, Known: c.Known,
		})
	case protocol.Train:
		delete(s.closedEpochs, c.Epoch) // it may be trained again
		s.recordImportance(c)
	case protocol.AnswerPlan:
		answer := c
		s.respond(c.Ticket, func(c *conn, ticket uint32) {
			c.Stream(door.PlanFrame(ticket, answer.Plan, answer.Trainer, answer.Scores))
		})
	case protocol.PlanBeside:
		s.planBeside(c)
	case protocol.AnswerSave:
		saved := door.Saved{Saved: c.Path, State: c.State}
		s.respond(c.Ticket, func(c *conn, ticket uint32) {
			c.Write(door.AppendJSON(nil, door.KindSave.Reply(), ticket, saved))
		})
	case protocol.ReadStates:
		s.readStates(c.Stream, c.State)
	case protocol.KeepState:
		s.keepState(c)
	case protocol.ForgetStates:
		s.inFolder(func() { s.forgetStates(c.Before) })
	case protocol.SaveState:
		s.saveState(c)
	case protocol.Log:
		s.log(c)
	}
}

func (s *stream) refuse(c protocol.Refuse) {
	no := door.Error{Code: door.CodeRequest, Sentence: c.Why}
	if c.Retry {
		no.Code = door.CodeNotReady
	}
	if r := s.requests[c.Ticket]; r != nil && r.kind == door.KindOpen {
		delete(s.requests, c.Ticket)
		r.err = no
		return
	}
	s.respond(c.Ticket, func(c *conn, ticket uint32) {
		c.Write(door.AppendError(nil, ticket, no))
	})
}

func (s *stream) log(c protocol.Log) {
	args := []any{"data", s.data.Name}
	if c.Rank >= 0 {
		args = append(args, "rank", c.Rank)
	}
	if c.Err != nil {
		args = append(args, "error", c.Err)
	}
	log := s.node.cfg.Log
	write := map[protocol.LogLevel]func(string, ...any){
		protocol.LogInfo: log.Info, protocol.LogWarning: log.Warn, protocol.LogError: log.Error,
	}[c.Level]
	s.later(func() { write(c.Text, args...) })
}

// begin opens the stream's lane when every trainer has opened the data set.
func (s *stream) begin() {
	err := s.takeLane()
	s.coordinate(protocol.Begun{
		Weighted: err == nil && s.plans.Sampler.Weighted(),
		Chooses:  err == nil && s.chooses(), Err: err,
	})
}

// takeLane creates the data set's stager, or opens another lane in it.
func (s *stream) takeLane() error {
	spec, t := s.coordinator.Spec(), s.node.cfg.Transport
	assignment, err := spec.Assignment(s.node.cfg.Assignment)
	if err != nil {
		return err
	}
	setup := &setup{
		rank: t.Rank(), ranks: t.Size(), world: s.coordinator.World(),
		sampler:    spec.SamplerConfig(s.data.Samples),
		assignment: assignment, policy: s.node.cfg.Policy, values: s.node.cfg.Options,
		capacityBytes: s.data.PartitionBytes[t.Rank()], windowBytes: s.data.WindowBytes,
		ownersRead: s.data.KeepsCopies, book: s.book(spec),
		size: func(id draw.SampleID) int64 { return slab.Footprint(s.data.Size(id)) },
		kept: func(id draw.SampleID, kept bool) { s.entries.Keep(int(id), kept) },
	}
	setup.values.Sample(&setup.sampler)
	if s.data.Tier != nil {
		setup.tierBytes, setup.tierBlockBytes = s.data.TierBytes[t.Rank()], s.data.TierBlockBytes
	}
	if s.data.Packages != nil {
		setup.packageBytes, setup.packageBlockBytes = s.data.PackageBytes, s.data.PackageBlockBytes
	}
	plans, made, err := setup.make()
	if err != nil {
		return err
	}
	if setup.book != nil {
		plans.Sampler = &sharedSampler{Sampler: plans.Sampler}
	}
	s.setup, s.plans = setup, plans
	s.node.seatsChanged.Store(true)
	if s.stager != nil {
		s.start(s.freeLane())
		s.step(stager.LaneOpened{Lane: s.lane, World: setup.world})
		s.weigh()
		return nil
	}
	s.stager = made
	s.start(0)
	if before := s.recovered; len(before) > 0 {
		s.recovered = nil
		s.step(stager.Recovered{IDs: before})
	}
	return nil
}

// start gives the stream its lane.
func (s *stream) start(lane int) {
	s.lane, s.began = lane, true
	s.node.lanes.Add(1)
	here := 0
	for _, rank := range s.setup.world {
		if int(rank) == s.node.cfg.Transport.Rank() {
			here++
		}
	}
	s.benefit = stager.NewBenefit(s.index+lane, here)
	s.weights[lane] = 1
}

// makePlan makes a plan without holding the stream's lock.
func (s *stream) makePlan(c protocol.MakePlan) {
	cfg := s.plans
	tidy := func() { s.node.tidy(cfg.Samples) }
	cfg.Drawn, cfg.Processes = tidy, c.Processes
	s.node.beside(nil, "make a plan", func() {
		s.node.giveWay()
		if shared, ok := cfg.Sampler.(*sharedSampler); ok {
			if err := shared.prepare(c); err != nil {
				panic("mpicache: " + err.Error()) // the coordinator's learner has accepted it, or made it
			}
		}
		tidy()
		e := protocol.PlanMade{Plan: plan.New(cfg, c.Epoch, c.Scores)}
		if cfg.Sampler.Weighted() {
			e.Scores = c.Digest()
		}
		s.locked(func() {
			if !s.closed {
				s.coordinate(e)
			}
		})
		tidy()
	})
}

// tidySamples is how many planned samples leave enough garbage, some megabytes, to be worth a
// collection.
const tidySamples = 1 << 18

// tidy is called before, during and after the planning of an epoch. It returns the garbage of plans
// to the system, the first time and whenever there is much of it: planning an epoch of a few
// thousand samples takes no longer than a collection.
func (n *Node) tidy(samples int) {
	if n.cfg.Tidy == nil {
		return
	}
	if left := n.planned.Add(int64(samples)); left == int64(samples) || left >= tidySamples {
		n.planned.Store(1)
		n.cfg.Tidy()
	}
}

// planBeside makes a plan that is not staged.
func (s *stream) planBeside(c protocol.PlanBeside) {
	r := s.requests[c.Ticket]
	if r == nil {
		return
	}
	delete(s.requests, c.Ticket)
	cfg := s.plans
	cfg.Samples, cfg.Processes = 0, c.Processes
	r.err = s.node.planBeside(r.conn, r.ticket, cfg, c.Epoch, c.Trainer)
}

// planBeside makes a plan for a single client, one at a time on this rank, and replies with it.
func (n *Node) planBeside(
	c *conn, ticket uint32, cfg plan.Config, epoch, trainer int,
) error {
	if waiting := c.plansBeside.Add(1); waiting > maxWaiting {
		return door.Broken("PLAN, where %d of this connection wait", waiting-1)
	}
	n.beside(nil, "make a plan beside training", func() {
		n.besideMu.Lock()
		reply := door.PlanFrame(ticket, plan.New(cfg, epoch, nil), trainer, "")
		n.besideMu.Unlock()
		c.Stream(func(yield func([]byte) bool) {
			reply(yield)
			c.plansBeside.Add(-1) // the plan is in memory until then
		})
	})
	return nil
}

// broadcast sends an event to all other ranks.
func (s *stream) broadcast(e protocol.Event) {
	switch e := e.(type) {
	case protocol.Opened:
		s.node.toPeers(append(s.message(messageOpened), asJSON(e.Spec)...))
	case protocol.Saved:
		s.node.toPeers(append(s.message(messageSaved), asJSON(e)...))
	case protocol.Sourced:
		msg := le.AppendUint32(s.message(messageSource), e.Generation)
		s.node.toPeers(append(le.AppendUint32(msg, uint32(e.Epoch)), e.Scores...))
	case protocol.Declined:
		s.node.toPeers(append(s.message(messageRefused), e.Why...))
	default:
		s.tellRecord(e)
	}
}

// onOpened handles another rank's message that one of its trainers has opened the data set.
func (s *samples) onOpened(about sender, text []byte) {
	e := protocol.Opened{Rank: about.rank}
	if err := json.Unmarshal(text, &e.Spec); err != nil {
		s.node.cfg.Log.Error("malformed spec", "from", about.rank, "error", err)
		return
	}
	s.locked(func() {
		if !s.isCurrent(about.job, about.generation) {
			return // when the sender ends it, its trainers open the data set again
		}
		l, err := s.join(about.job)
		if err != nil {
			s.node.cfg.Log.Error("a training of another rank is not served here", "from", about.rank,
				"error", err)
			return
		}
		// the sender remembers that training as well
		if l.coordinator.Remembers() && !l.livesHere() {
			l.coordinate(protocol.Vanished{Here: true})
		}
		l.coordinate(e)
	})
}

func (s *stream) onSource(from int, body []byte) {
	c := fields.Reader{Rest: body}
	e := protocol.Sourced{Rank: from, Generation: c.U32(), Epoch: int(c.U32())}
	e.Scores = protocol.Digest(c.Rest)
	s.locked(func() { s.coordinate(e) })
}

// onSaved handles rank 0's message that the state of a checkpoint is on disk.
func (s *stream) onSaved(from int, text []byte) {
	var e protocol.Saved
	if err := json.Unmarshal(text, &e); err != nil {
		s.node.cfg.Log.Error("malformed message", "from", from, "error", err)
		return
	}
	s.locked(func() { s.coordinate(e) })
}

// scorerFor returns the scorer that a spec's draws depend on, "" if they depend on no scores.
func (s *stream) scorerFor(spec protocol.Spec) string {
	sampler, err := s.node.cfg.system().NewSampler(spec.SamplerConfig(s.data.Samples))
	if err != nil || !sampler.Weighted() {
		return ""
	}
	if s.node.cfg.Scorer != "" {
		return s.node.cfg.Scorer
	}
	return protocol.DefaultScorer(spec.Sampler)
}
