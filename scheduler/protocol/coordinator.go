// Package protocol decides what ranks agree on: which trainers take part, when an epoch is planned
// and from which scores, and what is saved.
package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"rankpool/scheduler/plan"
)

// Coordinator is the state machine of one rank for one training on a data set, above the Stager. It
// decides which trainers take part, when a plan is made and from which scores, who may have the
// plan, and what is saved for a restarted rank and for a checkpoint. Events go in, commands come
// out; it performs no I/O, and the same events give the same commands. It is not safe for
// concurrent use.
//
//   - Opening: the trainers of all ranks open the data set; their specs must agree.
//   - Planning: an epoch is planned when a trainer requests its plan, or ahead of time once the
//     scores up to the cut of the epoch before have arrived. Every rank makes the plan itself. A
//     trainer gets it after every rank has made it from the same scores and has saved the state
//     from which it can make the plan again.
//   - Moving: two epochs are open at a time. A trainer moves to an open epoch or to the next one on
//     its own; to any other epoch, and to another life, all trainers move together.
//   - Reporting: losses go to every rank's Ledger, which folds them in order of global batch.
//   - Saving: a checkpoint contains the digest of the state that belongs to it.
//
// Messages between ranks are events, too: Tell sends one to all other ranks.
type Coordinator struct {
	cfg    Config
	do     func(Command) // of the Step in progress; nil: there is none
	events []Event       // that it still has to handle
	now    time.Duration // the latest time of any event

	agreed    agreement
	beginning bool // Begin was issued
	begun     bool // the stager exists
	weighted  bool // the sampler draws by importance
	chooses   bool // a system chooses what is served from the scores of all epochs

	waiting waitingPlans
	saves   saves
	making  *planning // in progress, or nil
	reading bool      // states are being read
	readFor uint32    // the generation of that read
	sources sources   // the scores that ranks have made plans from
	lists   lists     // the parts of epochs that trainers have handed in

	life
}

// life is a Coordinator's state of one life of the training. A new life begins when trainers load a
// checkpoint during training, or are restarted.
type life struct {
	importance importance
	states     *StatesRead // for the first plan
	refused    error       // why there is no ledger; nil if there is one, or none was needed yet
	ahead      *planning   // made before it was wanted
	// by epoch: the digest of what its plan was made from, until the state is on disk
	keeping map[int]Digest

	epochs epochs
	lives  lives
	held   held
}

// place is a batch of an epoch.
type place struct{ epoch, batch int }

const noEpoch = math.MinInt

// planning is a plan that is or was made, and what from.
type planning struct {
	epoch      int
	plan       *plan.Plan // nil until it is made
	base       []float32  // scores
	learned    Learned
	generation uint32 // of sources
	parts      []*list
}

// Config describes the rank and the data set of a coordinator.
type Config struct {
	Rank, Ranks int
	Data        string // the data set's name
	Identity    string // its digest
	Samples     int
	Options     string // of the system, as text
	Scorer      string // "": the sampler's own
	StatePath   string // the state file, which rank 0 writes; "": none
	// StateOptional lets a training begin with whatever scores exist if the state file is not the one
	// that it needs.
	StateOptional bool
	// Epochs is the number of epochs to train, unless the spec gives it: later ones are not planned
	// ahead; 0: unknown.
	Epochs int
	// Learner returns a new learner for a new training. If it is nil or returns nil, the system learns
	// only scores.
	Learner func() Learner
}

// scorer returns the name of the scorer.
func (cfg *Config) scorer(spec *Spec) string {
	return cmp.Or(cfg.Scorer, DefaultScorer(spec.Sampler))
}

// streamID returns the identity of the stream that the importance belongs to.
func (cfg *Config) streamID(spec *Spec) StreamID {
	return StreamID{
		Data: cfg.Data, Identity: cfg.Identity, Samples: cfg.Samples,
		Sampler: spec.Sampler, Scorer: cfg.scorer(spec), Options: cfg.Options,
		Seed: spec.Seed, Batch: spec.BatchSize * spec.World,
		DropLast: spec.DropLast, SamplerDropLast: spec.SamplerDropLast,
		Embeddings: spec.Embeddings, Plan: plan.Version,
	}
}

// behindLast reports whether epoch comes after the last one of the training.
func (cfg *Config) behindLast(epoch int, spec *Spec) bool {
	epochs := cmp.Or(spec.Epochs, cfg.Epochs)
	return epochs > 0 && epoch >= epochs
}

// savesFiles reports whether the rank writes the state file.
func (cfg *Config) savesFiles() bool { return cfg.StatePath != "" && cfg.Rank == 0 }

// New returns the coordinator of a data set that no trainer has opened yet.
func New(cfg Config) *Coordinator {
	if cfg.Learner == nil {
		cfg.Learner = func() Learner { return nil }
	}
	return &Coordinator{
		cfg: cfg, sources: newSources(cfg.Rank, cfg.Ranks), saves: newSaves(), life: noLife(),
	}
}

func noLife() life {
	return life{
		keeping: map[int]Digest{}, epochs: newEpochs(), lives: noLives(), held: noneHeld(),
	}
}

// Step handles an event, and passes the resulting commands to do one by one. If do calls Step,
// because a command is carried out already, that event comes next.
func (c *Coordinator) Step(e Event, do func(Command)) {
	if c.events = append(c.events, e); c.do != nil {
		return
	}
	c.do = do
	for len(c.events) > 0 {
		e := c.events[0]
		c.events = c.events[1:]
		c.handle(e)
	}
	c.do, c.events = nil, nil
}

func (c *Coordinator) handle(e Event) {
	switch e := e.(type) {
	case Opened:
		c.onOpened(e)
	case Replaced:
		delete(c.epochs.wishes, e.Trainer)
	case Begun:
		c.onBegun(e)
	case PlanWanted:
		c.now = max(c.now, e.Now)
		e.Now = c.now
		c.onPlanWanted(e)
	case BatchWanted:
		if c.epochs.isNext(e.Epoch, c.Locals()) {
			c.wantPlan(e.Epoch, e.Batch)
		}
	case Trained:
		c.onTrained(e)
	case Measured:
		c.onMeasured(e)
	case Listed:
		c.onListed(e)
	case SaveWanted:
		c.now = max(c.now, e.Now)
		c.onSaveWanted(e)
	case Canceled:
		c.waiting.cancel(e.Ticket)
		c.saves.cancel(e.Ticket)
	case Moved:
		c.onTold(told(e), c.onMoved)
	case Wished:
		c.onTold(told(e), c.wish)
	case Restarted:
		c.onTold(told(e), c.beginAnew)
	case Saving:
		c.onTold(told(e), c.onSaving)
	case Saved:
		c.saves.onSaved(e, c.now, c.do)
	case Sourced:
		c.onSourced(e)
	case Declined:
		c.waiting.fail(c.do, fmt.Sprintf("rank %d reports: %s", e.Rank, e.Why), false)
	case Hung:
		c.waiting.fail(c.do, e.Why, true)
	case PlanMade:
		c.onPlanMade(e)
	case Left:
		delete(c.epochs.plans, e.Epoch)
	case StatesRead:
		c.onStatesRead(e)
	case StateKept:
		c.onStateKept(e)
	case StateSaved:
		c.onStateSaved(e)
	case Ticked:
		c.now = max(c.now, e.Now)
		c.onTicked()
	case Finished:
		c.onFinished()
	}
}

// Opening

func (c *Coordinator) onOpened(e Opened) {
	here := e.Rank == c.cfg.Rank
	if here {
		if err := c.agreed.mayOpen(e); err != nil {
			c.refuse(e.Ticket, err)
			return
		}
	}
	before := c.agreed.conflict
	isNew, err := c.agreed.open(e.Spec, e.Rank)
	if c.lists == nil {
		c.lists = make(lists, len(c.agreed.world))
	}
	if isNew || !errors.Is(c.agreed.conflict, before) {
		if here {
			c.tell(Opened{Rank: e.Rank, Spec: e.Spec})
		}
		c.agree()
	}
	switch {
	case !here && err != nil:
		c.do(Log{LogInfo, "a trainer was refused", e.Rank, err})
	case !here:
	case err != nil:
		c.refuse(e.Ticket, err)
	case c.agreed.conflict != nil:
		c.refuse(e.Ticket, c.agreed.conflict)
	default:
		c.do(Accept{e.Ticket})
	}
}

// agree acts on new specs of trainers: it begins the stager once all trainers have opened the data
// set, then plans, or answers waiting requests with the conflict.
func (c *Coordinator) agree() {
	c.refused = nil // they may have loaded another checkpoint, or restored lost files
	if c.agreed.conflict == nil && c.agreed.missing == 0 && !c.beginning {
		c.beginning = true
		c.do(Begin{})
	}
	if c.agreed.conflict != nil {
		c.do(Log{LogInfo, "a data set cannot be served", -1, c.agreed.conflict})
		c.waiting.fail(c.do, c.agreed.conflict.Error(), false)
		return
	}
	c.grant()
	c.plan()
}

func (c *Coordinator) onBegun(e Begun) {
	if e.Err != nil {
		c.agreed.conflict = e.Err
		c.do(Log{LogInfo, "a data set cannot be served", -1, e.Err})
		c.waiting.fail(c.do, e.Err.Error(), false)
		return
	}
	c.begun, c.weighted, c.chooses = true, e.Weighted, e.Chooses
	c.importance.learner = c.cfg.Learner()
	c.grant()
	c.plan()
}

// endTraining refuses all trainers from now on: ranks or trainers differ, and it is unknown which
// is right.
func (c *Coordinator) endTraining(err error) {
	if c.agreed.conflict == nil {
		c.do(Log{LogError, "a data set cannot be served", -1, err})
		c.agreed.conflict = err
		c.waiting.fail(c.do, err.Error(), false)
	}
}

// Requests for plans

func (c *Coordinator) onPlanWanted(e PlanWanted) {
	if c.agreed.conflict != nil {
		c.refuse(e.Ticket, c.agreed.conflict)
		return
	}
	to := place{e.Epoch, e.Batch}
	if c.importance.ledger != nil && c.lives.isNew(e.Trainer, c.agreed.trainings) {
		c.waiting = append(c.waiting, e)
		c.tell(Restarted{c.cfg.Rank, e.Trainer, e.Epoch, e.Batch})
		c.beginAnew(e.Trainer, to)
		return
	}
	if err := c.lives.join(e.Trainer, c.agreed.trainings); err != nil {
		c.refuse(e.Ticket, err)
		return
	}
	c.move(e.Trainer, to)
	c.waiting = append(c.waiting, e)
	if c.refused != nil {
		c.waiting.fail(c.do, c.refused.Error(), false)
	}
	c.answerPlans()
}

// answerPlans answers every PlanWanted whose plan is ready.
func (c *Coordinator) answerPlans() {
	c.waiting = slices.DeleteFunc(c.waiting, func(w PlanWanted) (answered bool) {
		plan := c.Plan(w.Epoch)
		// All ranks must have the same plan, and be able to make it again.
		scores, kept := c.sources.own(w.Epoch)
		same := !c.lists.waits(w.Epoch) && (!c.weighted || kept && c.sources.agreed(w.Epoch))
		if _, waits := c.lives.anew[w.Trainer]; waits || plan == nil || !same {
			return false
		}
		c.do(AnswerPlan{Ticket: w.Ticket, Trainer: w.Trainer, Plan: plan, Scores: scores})
		return true
	})
}

// refusePlans answers waiting plan requests with the reason why no plan can be made. A retry may
// succeed when trainers report something else.
func (c *Coordinator) refusePlans(err error) {
	if c.refused == nil || c.refused.Error() != err.Error() {
		c.do(Log{LogError, "no plan can be made", -1, err})
		c.tell(Declined{c.cfg.Rank, err.Error()})
	}
	c.refused, c.epochs.want = err, noEpoch
	c.waiting.fail(c.do, err.Error(), false)
}

func (c *Coordinator) refuse(ticket uint64, err error) {
	c.do(Refuse{Ticket: ticket, Why: err.Error()})
}

func (c *Coordinator) tell(e Event) {
	if c.cfg.Ranks > 1 {
		c.do(Tell{e})
	}
}

func (c *Coordinator) onTicked() {
	// The stager needs all trainers; the first plan needs what each reports of its training.
	if c.agreed.missing > 0 || c.begun && !c.agreed.known() {
		why := c.agreed.whoIsMissing()
		c.waiting.refuseLate(c.do, c.now, func(PlanWanted) string { return why })
	}
	c.waiting.refuseLate(c.do, c.now, func(w PlanWanted) string { return c.missing(w.Epoch) })
	if c.saves.overdue(c.now) {
		c.answerSaves()
	}
	c.saves.answer(c.now, c.do)
}

// Moving from epoch to epoch

// Plan returns the plan of an open epoch, or nil.
func (c *Coordinator) Plan(epoch int) *plan.Plan { return c.epochs.plans[epoch] }

// move moves a trainer of this rank to a place, and tells the other ranks. If the trainer may not
// move there yet, it waits.
func (c *Coordinator) move(trainer int, to place) {
	if !c.epochs.mayMove(to.epoch, c.Locals()) {
		c.tell(Wished{c.cfg.Rank, trainer, to.epoch, to.batch})
		c.wish(trainer, to)
		return
	}
	delete(c.epochs.wishes, trainer)
	c.tell(Moved{c.cfg.Rank, trainer, to.epoch, to.batch})
	c.finishEpochs(trainer, to)
	c.wantPlan(to.epoch, to.batch)
	c.grant()
}

// wish records where a trainer waits to move to, and moves all trainers once they all wait for the
// same epoch.
func (c *Coordinator) wish(trainer int, to place) {
	together := c.agreed.all()
	if c.begun && !c.weighted {
		together = c.Locals()
	}
	to, all := c.epochs.wish(trainer, to, together)
	if !all {
		return
	}
	for _, t := range slices.Sorted(maps.Keys(c.epochs.wishes)) {
		c.finishEpochs(t, to)
	}
	clear(c.epochs.wishes)
	if c.Plan(to.epoch) == nil {
		c.nextGeneration()
	}
	c.wantPlan(to.epoch, to.batch)
}

// grant moves the waiting trainers of this rank that may move now. A rank that has no trainers, or
// was started again, follows the others.
func (c *Coordinator) grant() {
	locals := c.Locals()
	for _, t := range locals {
		if to, ok := c.epochs.wishes[t]; ok && c.epochs.mayMove(to.epoch, locals) {
			c.move(t, to)
		}
	}
	// A rank that was started again has no plan although its trainers had one: they may be waiting
	// for trainers of other ranks, which get no plan before this rank has made it, too.
	startedAgain := c.epochs.idle() && c.agreed.planned(locals)
	if !c.begun || len(locals) > 0 && !startedAgain {
		return // before Begun, a trainer may still open here
	}
	if to, ok := c.epochs.follow(locals); ok {
		c.wantPlan(to.epoch, to.batch)
	}
}

// finishEpochs records that a trainer moved to another epoch.
func (c *Coordinator) finishEpochs(trainer int, to place) {
	c.epochs.finish[trainer] = to
	if c.importance.folds() {
		c.importance.ledger.Finish(trainer, to.epoch)
		c.fold()
	}
	c.do(Went{trainer, to.epoch})
}

// told is a message of another rank about one of its trainers.
type told struct{ Rank, Trainer, Epoch, Batch int }

func (c *Coordinator) onTold(m told, handle func(trainer int, at place)) {
	if c.theirs(m.Trainer, m.Rank) {
		handle(m.Trainer, place{m.Epoch, m.Batch})
	}
}

// onMoved records that a trainer on another rank moved to a place.
func (c *Coordinator) onMoved(trainer int, to place) {
	delete(c.epochs.wishes, trainer)
	// If it may not, its rank did not know this rank's trainers yet.
	if err := c.lives.join(trainer, c.agreed.trainings); err != nil {
		c.endTraining(err)
	}
	c.finishEpochs(trainer, to)
	c.grant()
}

// theirs reports whether a trainer is on the rank that sent a message about it.
func (c *Coordinator) theirs(trainer, rank int) bool {
	if c.agreed.has(trainer, rank) {
		return true
	}
	c.do(Log{LogError, "a rank reports for a trainer that is not its own", rank, nil})
	return false
}

// Lives

// beginAnew records that a trainer begins a new life at a place; once all trainers do, the life
// begins.
func (c *Coordinator) beginAnew(trainer int, at place) {
	at, all := c.lives.begin(trainer, at, len(c.agreed.world))
	if !all {
		return
	}
	c.life = noLife()
	c.saves.beginAnew()
	c.waiting.cancel(0)
	c.saves.cancel(0)
	c.importance.learner = c.cfg.Learner()
	c.nextGeneration()
	for t := range c.agreed.world {
		if err := c.lives.join(t, c.agreed.trainings); err != nil {
			c.refusePlans(err)
			return
		}
		c.finishEpochs(t, at)
	}
	c.wantPlan(at.epoch, at.batch)
}

// nextGeneration discards the sources of plans: the same epochs will be planned again from other
// scores.
func (c *Coordinator) nextGeneration() {
	clear(c.keeping)
	c.do(ForgetStates{Before: math.MaxInt})
	if err := c.sources.next(); err != nil {
		c.endTraining(err)
	}
}

// Reporting

func (c *Coordinator) onTrained(r Trained) {
	if c.begun && !c.weighted {
		return
	}
	if r.Rank != c.cfg.Rank {
		if c.theirs(r.Trainer, r.Rank) {
			c.take(r)
		}
		return
	}
	if at, ok := c.epochs.finish[r.Trainer]; ok && r.Epoch < at.epoch {
		return // the trainer has left the epoch: its reports are final
	}
	c.tell(r)
	c.take(r)
}

// onMeasured keeps an accuracy for the next cut. Ranks get it before any report of the trainer's
// next epoch, so all have it at that epoch's cut, and not at the cut before.
func (c *Coordinator) onMeasured(e Measured) {
	switch {
	case c.begun && c.importance.learner == nil:
		return
	case e.Rank == c.cfg.Rank:
		c.tell(e)
	case !c.theirs(e.Trainer, e.Rank):
		return
	}
	c.importance.measure(e)
}

// take passes a report to the ledger, or holds it until its epoch opens.
func (c *Coordinator) take(r Trained) {
	if c.importance.folds() && c.importance.ledger.Opened(r.Epoch) {
		c.importance.report(r, c.do)
		c.fold()
	} else if len(c.epochs.opened) == 0 || r.Epoch > c.epochs.newest() {
		c.held.hold(r)
	}
}

// fold folds what is final, refreshes predictions, and continues to plan when the cut is reached.
func (c *Coordinator) fold() {
	if c.importance.fold(c.do) && c.importance.cut == nil {
		c.plan()
	}
	c.answerSaves()
}

// Planning

// wantPlan requests the plan of epoch, beginning at batch from, unless it exists.
func (c *Coordinator) wantPlan(epoch, from int) {
	if c.Plan(epoch) != nil {
		return
	}
	c.epochs.request(epoch, from, c.begun)
	c.plan()
}

// plan makes the plan that is due, if its scores have arrived: that of the requested epoch, else
// that of the one after the newest.
func (c *Coordinator) plan() {
	if !c.begun || c.making != nil || c.reading {
		return
	}
	epoch := c.epochs.want
	if epoch == noEpoch {
		if len(c.epochs.opened) == 0 || c.ahead != nil {
			return
		}
		if epoch = c.epochs.newest() + 1; c.cfg.behindLast(epoch, c.agreed.spec) {
			return
		}
	}
	if !c.agreed.known() {
		return
	}
	parts, ok := c.parts(epoch, epoch == c.epochs.want)
	if !ok {
		return
	}
	if c.weighted && c.importance.ledger == nil {
		first, ok := c.restore(epoch)
		if !ok {
			return
		}
		if epoch = first; first > c.epochs.want {
			// the requested epoch can no longer be planned: training is ahead of it
			c.epochs.want, c.epochs.from = first, 0
		}
	}
	if c.weighted && c.importance.cut == nil {
		if !c.importance.ledger.Ready() {
			return
		}
		c.importance.takeCut()
	}
	m := MakePlan{
		Epoch: epoch, Scores: c.importance.cut, Stream: c.streamID(),
		Cuts: c.importance.cutsBefore(epoch), Learned: c.importance.learned,
		Processes: c.agreed.processes(), Lists: planLists(parts),
	}
	if a := c.ahead; a != nil && a.epoch == epoch {
		c.install(a)
		return
	}
	c.making = &planning{
		epoch: epoch, base: c.importance.cut, learned: c.importance.learned,
		generation: c.sources.generation, parts: parts,
	}
	c.do(m)
}

// onPlanMade installs a new plan if it was requested; otherwise the plan waits and its first
// samples are staged.
func (c *Coordinator) onPlanMade(e PlanMade) {
	m := c.making
	c.making, m.plan = nil, e.Plan
	if m.generation != c.sources.generation ||
		!slices.Equal(m.parts, c.lists.whole(m.epoch, false)) {
		c.plan() // training has moved on
		return
	}
	if c.weighted {
		c.keeping[m.epoch] = e.Scores
		c.do(KeepState{c.importance.sourceOf(m, c.streamID()), c.sources.generation})
	}
	_, final := c.parts(m.epoch, true)
	switch {
	case final && m.epoch == c.epochs.want, c.importance.restores(m.epoch):
		c.install(m)
	case c.epochs.want == noEpoch, m.epoch == c.epochs.want:
		c.ahead = m
		c.importance.stage(Stage{Plan: m.plan, Base: m.base}, c.do)
	default:
		c.plan() // another epoch was requested meanwhile
	}
}

// install makes a plan the newest epoch's: reports refer to it from now on, and trainers may get
// it.
func (c *Coordinator) install(made *planning) {
	plan, base := made.plan, made.base
	from, trained := 0, plan.Batches()
	if plan.Epoch == c.epochs.want {
		from = min(c.epochs.from, plan.Batches()) // epochs may differ in length
		trained = from
		c.epochs.want = noEpoch
	}
	if c.ahead != made {
		c.importance.stage(Stage{Plan: plan, From: from, Base: base}, c.do)
	}
	c.ahead = nil
	c.epochs.open(plan)
	c.lists.opened(plan.Epoch)
	c.importance.made, c.importance.cut = made, nil
	train := Train{Epoch: plan.Epoch, Draws: plan.Draws}
	if c.weighted {
		train.Scores = base
		restored := c.importance.open(made, trained, c.chooses)
		// After open, which may have folded the rest of an old epoch.
		c.do(c.importance.ledger.Rescore(Folded{Epoch: -1}))
		if !c.saves.checkpointed && !restored && c.cfg.savesFiles() {
			c.saves.save(SaveState{Snap: c.importance.sourceOf(made, c.streamID())}, c.do)
		}
	}
	c.do(train)
	if c.weighted {
		c.takeHeld()
	}
	c.answerPlans()
	c.grant()
	c.plan()
}

// takeHeld handles the held reports of open epochs, in order of arrival, and then the ends of
// epochs.
func (c *Coordinator) takeHeld() {
	for _, r := range c.held.take() {
		if c.importance.ledger.Opened(r.Epoch) {
			c.importance.report(r, c.do)
		} else if r.Epoch > c.epochs.newest() {
			c.held.hold(r)
		}
	}
	for trainer, at := range c.epochs.finish {
		c.importance.ledger.Finish(trainer, at.epoch)
	}
	for trainer, at := range c.saves.at {
		c.importance.settle(trainer, c.epochs.canonical(at))
	}
	c.fold()
}

// onSourced handles the digest of the scores from which a rank made a plan.
func (c *Coordinator) onSourced(e Sourced) {
	if err := c.sources.take(e); err != nil {
		c.endTraining(err)
	}
	c.answerPlans()
}

// onStateKept tells the other ranks what a plan was made from, after the state is on disk:
// otherwise a rank could die after trainers have got the plan, and be unable to make it again.
func (c *Coordinator) onStateKept(e StateKept) {
	if scores, ok := c.keeping[e.Epoch]; ok && e.Generation == c.sources.generation {
		delete(c.keeping, e.Epoch)
		told := Sourced{c.cfg.Rank, c.sources.generation, e.Epoch, scores}
		c.tell(told)
		c.onSourced(told)
	}
	c.do(ForgetStates{Before: slices.Min(append(slices.Clone(c.epochs.opened), e.Epoch))})
}

// Restoring. Saved states are read when the first epoch is requested: only then have all trainers
// reported what they resume from.

// restore creates the ledger. It returns the epoch to plan first, from which the ledger advances to
// the requested one. ok is false while states are being read, or if training would not continue
// with the same scores.
func (c *Coordinator) restore(epoch int) (first int, ok bool) {
	if c.refused != nil {
		c.refusePlans(c.refused) // until trainers report something else
		return 0, false
	}
	if c.states == nil {
		c.reading, c.readFor = true, c.sources.generation
		c.do(ReadStates{c.streamID()})
		return 0, false
	}
	spec := c.agreed.spec
	scorer, err := NewScorer(c.cfg.scorer(spec))
	if err != nil {
		panic("scheduler: " + err.Error())
	}
	equal := func() []float32 {
		return EqualScores(c.cfg.Samples, scorer.Initial(spec.BatchSize*spec.World))
	}
	from, err := c.origin(place{epoch, c.epochs.from}, equal)
	if err != nil {
		c.refusePlans(err)
		return 0, false
	}
	if from.warning != "" {
		c.do(Log{LogWarning, from.warning, -1, nil})
	}
	if err := c.importance.begin(from, scorer, spec, equal); err != nil {
		c.refusePlans(err)
		return 0, false
	}
	if restored := c.importance.restored; restored != nil {
		return restored.Epoch, true
	}
	return epoch, true
}

func (c *Coordinator) onStatesRead(e StatesRead) {
	c.reading = false
	if c.readFor == c.sources.generation {
		c.states = &e
	}
	c.plan()
}

// origin decides where the first plan's scores come from.
func (c *Coordinator) origin(at place, equal func() []float32) (origin, error) {
	n := need{
		stream: c.streamID(), epoch: at.epoch, batch: at.batch,
		trainings: c.agreed.trainings, equal: func() *Snapshot {
			return &Snapshot{Stream: c.streamID(), Scores: equal()}
		},
		path: c.cfg.StatePath, optional: c.cfg.StateOptional, StatesRead: *c.states,
	}
	c.states = nil
	if n.begun() {
		for _, k := range n.Kept {
			if k.Err != nil {
				c.do(Log{LogWarning, "an importance state is not used: " + k.Path, -1, k.Err})
			}
		}
	} else {
		c.do(ForgetStates{Before: math.MaxInt}) // another training has left them
	}
	checkpoint, err := n.checkpoint()
	if err == nil && checkpoint != nil {
		// the state file belongs to that checkpoint until training makes another one
		c.saves.checkpointed = true
	}
	c.saves.ofCheckpoint = slices.ContainsFunc(append(n.Own, n.File), StateFile.ofCheckpoint)
	if n.begun() && n.File.ofCheckpoint() {
		c.saves.checkpointed = true // it belongs to a checkpoint made before the ranks were restarted
	}
	return n.decide()
}

// streamID returns the identity of the stream that the importance belongs to.
func (c *Coordinator) streamID() StreamID { return c.cfg.streamID(c.agreed.spec) }

// Saving

func (c *Coordinator) onSaveWanted(e SaveWanted) {
	if c.begun && !c.weighted {
		c.do(AnswerSave{Ticket: e.Ticket})
		return
	}
	if err := c.lives.join(e.Trainer, c.agreed.trainings); err != nil {
		c.refuse(e.Ticket, err)
		return
	}
	c.tell(Saving{c.cfg.Rank, e.Trainer, e.Epoch, e.Batch})
	c.awaitSave(e.Trainer, place{e.Epoch, e.Batch}, e.Ticket)
}

// onSaving handles the save of a trainer on another rank.
func (c *Coordinator) onSaving(trainer int, at place) {
	switch {
	case c.begun && !c.weighted:
	case c.cfg.Rank == 0:
		c.awaitSave(trainer, at, 0)
	default:
		c.savesThere(trainer, at)
	}
}

// awaitSave makes this rank save the state of a place once all reports before it have arrived.
func (c *Coordinator) awaitSave(trainer int, at place, ticket uint64) {
	c.saves.await(ticket, at, c.now)
	c.savesThere(trainer, at)
	if c.importance.ledger == nil && c.epochs.isNext(at.epoch, c.Locals()) {
		c.wantPlan(at.epoch, at.batch) // this rank was restarted
	}
}

// savesThere records that a trainer saves at a place: it will send no more reports of batches
// before it.
func (c *Coordinator) savesThere(trainer int, at place) {
	c.saves.checkpointed = true
	c.saves.at[trainer] = at
	if c.importance.folds() {
		c.importance.settle(trainer, c.epochs.canonical(at))
		c.fold()
	}
	c.answerSaves()
}

// answerSaves answers every SaveWanted whose state is complete or that has timed out.
func (c *Coordinator) answerSaves() {
	c.saves.waiting = slices.DeleteFunc(c.saves.waiting, func(w waitingSave) (answered bool) {
		at := c.epochs.canonical(w.at)
		switch {
		case c.saves.has(at):
			c.saves.attach(w.ticket, c.do)
		case c.importance.folds() && c.complete(at):
			c.saves.saveAt(at, w.ticket, c.importance.stateAt(at, c.streamID()), c.do)
		case c.now > w.deadline:
			answerSave(AnswerSave{Ticket: w.ticket}, c.do)
		default:
			return false
		}
		return true
	})
}

// complete reports whether the ledger has all reports before a place, and can make a snapshot of
// it.
func (c *Coordinator) complete(at place) bool {
	ledger := c.importance.ledger
	newest := ledger.newest()
	p := ledger.find(newest)
	switch {
	case at.epoch == newest:
		for t := range c.agreed.world {
			finished, known := c.epochs.finish[t]
			here := int(p.final[t]) >= at.batch && (at.batch > 0 || known && finished.epoch >= newest)
			if told, ok := c.saves.at[t]; !here && (!ok || c.epochs.canonical(told) != at) {
				return false
			}
		}
		return true
	case at == place{newest + 1, 0}:
		plan := c.Plan(newest)
		known := c.importance.cut != nil || c.cfg.behindLast(at.epoch, c.agreed.spec)
		return plan != nil && known && ledger.Final(newest) == plan.Batches()
	}
	return false
}

func (c *Coordinator) onStateSaved(e StateSaved) {
	if !c.saves.written(e, c.now) {
		return
	}
	saved := Saved{c.cfg.Rank, e.Path, e.Digest}
	switch {
	case c.cfg.Rank == 0:
		c.tell(saved)
		c.saves.onSaved(saved, c.now, c.do)
	case c.cfg.StatePath == "":
		c.saves.onSaved(saved, c.now, c.do)
	default:
		c.saves.answer(c.now, c.do)
	}
}

// onFinished saves the final state, unless the state file belongs to a checkpoint.
func (c *Coordinator) onFinished() {
	ledger := c.importance.ledger
	if ledger != nil && len(c.epochs.opened) > 0 && !c.saves.checkpointed && c.cfg.savesFiles() {
		final := ledger.Final(c.epochs.newest())
		snap := ledger.Snapshot(c.importance.made.base, final)
		snap.Stream = c.streamID()
		c.saves.save(SaveState{Snap: snap}, c.do)
	}
}

// Queries between events

// Spec returns the spec that the trainers agree on, or that of the first one; nil if none has
// opened the data set.
func (c *Coordinator) Spec() *Spec { return c.agreed.spec }

// World returns the rank of each trainer, -1 for a missing one. The caller must not change it.
func (c *Coordinator) World() []int32 { return c.agreed.world }

// Conflict returns why the data set cannot be served, or nil.
func (c *Coordinator) Conflict() error { return c.agreed.conflict }

// Has reports whether trainer opened the data set on rank.
func (c *Coordinator) Has(trainer, rank int) bool { return c.agreed.has(trainer, rank) }

// Locals returns the trainers of this rank.
func (c *Coordinator) Locals() []int { return c.agreed.locals(c.cfg.Rank) }

// Open returns the open epochs, the newest last. The caller must not change the result.
func (c *Coordinator) Open() []int { return c.epochs.opened }

// In returns the epoch that a trainer moved to last.
func (c *Coordinator) In(trainer int) (epoch int, ok bool) {
	at, ok := c.epochs.finish[trainer]
	return at.epoch, ok
}

// Held returns how many reports of a trainer are held, and whether one of this batch is.
func (c *Coordinator) Held(trainer, epoch, batch int) (held int, this bool) {
	by := c.held.by[trainer]
	return len(by), by[place{epoch, batch}]
}

// Weighted reports whether the stager exists and its sampler draws by importance.
func (c *Coordinator) Weighted() bool { return c.weighted }

// Waiting returns the number of plan requests without an answer.
func (c *Coordinator) Waiting() int { return len(c.waiting) }

// Ledger returns the ledger, for reading only; nil before the first plan.
func (c *Coordinator) Ledger() *Ledger { return c.importance.ledger }
