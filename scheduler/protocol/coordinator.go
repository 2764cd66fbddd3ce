// Package protocol decides what ranks agree on: which trainers take part, when an epoch is planned
// and from which scores, and what is saved.
package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
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
	cfg Config
	do  func(Command) // of the Step in progress
	now time.Duration // the latest time of any event

	agreed    agreement
	beginning bool // Begin was issued
	begun     bool // the stager exists
	weighted  bool // the sampler draws by importance
	chooses   bool // a system chooses what is served from the scores of all epochs

	waiting  []PlanWanted        // without an answer yet
	saves    []waitingSave       // waiting for reports
	saving   map[int]*savedState // by SaveState.ID: those not yet made known to trainers
	lastSave int
	making   *planning // in progress, or nil
	reading  bool      // states are being read
	readFor  uint32    // the generation of that read
	sources  sources   // the scores that ranks have made plans from

	life
}

// life is a Coordinator's state of one life of the training. A new life begins when trainers load a
// checkpoint during training, or are restarted.
type life struct {
	// nil until the first epoch is requested, or if the sampler uses no scores
	ledger   *Ledger
	restored *Snapshot
	states   *StatesRead // for the first plan
	refused  error       // why there is no ledger; nil if there is one, or none was needed yet
	cut      []float32   // scores for the plan after the newest epoch, nil until they are known
	made     *planning   // the newest epoch's
	scored   bool        // the stager has received scores
	// of the epochs planned before, in order, if a system chooses by them
	cuts    []Cut
	learner Learner // nil: nothing is learned but scores
	learned Learned // from learner, when cut was taken

	opened []int              // epochs that training is or was in, the newest last, at most two
	plans  map[int]*plan.Plan // those of their plans that the stager still has
	ahead  *planning          // made before it was wanted
	want   int                // a requested epoch that is not open yet, or noEpoch
	from   int                // its first batch
	// by epoch: the digest of what its plan was made from, until the state is on disk
	keeping map[int]Digest

	finish map[int]place  // by trainer: where it moved to last
	wishes map[int]place  // by trainer: where it waits to move to
	joined map[int]joined // by trainer: those that have requested a plan
	anew   map[int]place  // by trainer: where it waits to begin another life

	held   []Trained              // reports of epochs that are not open yet
	heldBy map[int]map[place]bool // by trainer: the batches of held

	savesAt      map[int]place // by trainer: where it asked to save last
	saved        *savedState   // the newest
	onDisk       Saved         // the newest that rank 0 has saved
	checkpointed bool          // the state file belongs to a checkpoint
	putAside     bool          // the next save puts the states of earlier checkpoints aside
}

// place is a batch of an epoch.
type place struct{ epoch, batch int }

const noEpoch = math.MinInt

// joined describes how a trainer joined the current life.
type joined struct {
	life       uint64
	turn       uint32
	begins     bool // it had no plan of this life when it joined
	first      bool // it had no life before
	checkpoint *Checkpoint
}

// planning is a plan that is or was made, and what from.
type planning struct {
	epoch      int
	plan       *plan.Plan // nil until it is made
	base       []float32  // scores
	learned    Learned
	generation uint32 // of sources
}

// waitingSave is a SaveWanted that waits for reports that its state must include. Rank 0 also has
// one, without a ticket, for each save on another rank: it saves the state for all.
type waitingSave struct {
	ticket   uint64 // 0: none
	at       place  // as the trainer sent it
	deadline time.Duration
}

// savedState is the importance at one place that is saved or about to be.
type savedState struct {
	at       place
	digest   Digest // "": SaveState is not done yet
	onDisk   bool   // so trainers may know it
	path     string
	waiting  []uint64      // tickets
	deadline time.Duration // until when to wait for rank 0
}

const (
	// missedAfter is how long a plan's request waits for missing trainers before it is answered with
	// their names. The client then asks again.
	missedAfter = 10 * time.Second
	// saveTimeout bounds how long a save waits for reports of other trainers, which are at most a step
	// apart, and then for rank 0.
	saveTimeout = 30 * time.Second
)

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

// New returns the coordinator of a data set that no trainer has opened yet.
func New(cfg Config) *Coordinator {
	if cfg.Learner == nil {
		cfg.Learner = func() Learner { return nil }
	}
	return &Coordinator{
		cfg: cfg, sources: newSources(cfg.Rank, cfg.Ranks), saving: map[int]*savedState{},
		life: noLife(),
	}
}

func noLife() life {
	return life{
		plans: map[int]*plan.Plan{}, want: noEpoch, keeping: map[int]Digest{},
		finish: map[int]place{}, wishes: map[int]place{}, joined: map[int]joined{}, anew: map[int]place{},
		heldBy: map[int]map[place]bool{}, savesAt: map[int]place{},
	}
}

// Step handles an event, and passes the resulting commands to do one by one. The scores in a
// Rescore are valid only during that call, since the next batch changes them. do must not call
// Step; the completion of a command is a later event.
func (c *Coordinator) Step(e Event, do func(Command)) {
	c.do = do
	switch e := e.(type) {
	case Remembered:
		c.agreed.before, c.agreed.ranks = &e.Spec, e.Ranks
	case Vanished:
		c.agreed.before = nil
		if !e.Here {
			c.agreed.ranks = nil
		}
	case Opened:
		c.onOpened(e)
	case Replaced:
		delete(c.wishes, e.Trainer)
	case Begun:
		c.onBegun(e)
	case PlanWanted:
		c.now = max(c.now, e.Now)
		e.Now = c.now
		c.onPlanWanted(e)
	case BatchWanted:
		if c.isNext(e.Epoch) {
			c.wantPlan(e.Epoch, e.Batch)
		}
	case Trained:
		c.onTrained(e)
	case SaveWanted:
		c.now = max(c.now, e.Now)
		c.onSaveWanted(e)
	case Canceled:
		c.cancel(e.Ticket)
	case Moved:
		c.onTold(told(e), c.onMoved)
	case Wished:
		c.onTold(told(e), c.wish)
	case Restarted:
		c.onTold(told(e), c.beginAnew)
	case Saving:
		c.onTold(told(e), c.onSaving)
	case Saved:
		c.onSaved(e)
	case Sourced:
		c.onSourced(e)
	case Declined:
		c.failPlans(fmt.Sprintf("rank %d reports: %s", e.Rank, e.Why), false)
	case Hung:
		c.failPlans(e.Why, true)
	case PlanMade:
		c.onPlanMade(e)
	case Left:
		delete(c.plans, e.Epoch)
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
	c.do = nil
}

// Opening

func (c *Coordinator) onOpened(e Opened) {
	here := e.Rank == c.cfg.Rank
	if here {
		if err := c.mayOpen(e); err != nil {
			c.refuse(e.Ticket, err)
			return
		}
	}
	before := c.agreed.conflict
	isNew, err := c.agreed.open(e.Spec, e.Rank)
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

func (c *Coordinator) mayOpen(e Opened) error {
	if err := c.agreed.newcomer(e.Spec, e.Rank); err != nil {
		return err
	}
	if e.Taken != "" {
		return errors.New(e.Taken)
	}
	return c.agreed.stranger(e.Spec, e.Rank)
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
		c.failPlans(c.agreed.conflict.Error(), false)
		return
	}
	c.grant()
	c.plan()
}

func (c *Coordinator) onBegun(e Begun) {
	if e.Err != nil {
		c.agreed.conflict = e.Err
		c.do(Log{LogInfo, "a data set cannot be served", -1, e.Err})
		c.failPlans(e.Err.Error(), false)
		return
	}
	c.begun, c.weighted, c.chooses = true, e.Weighted, e.Chooses
	c.learner = c.cfg.Learner()
	c.grant()
	c.plan()
}

// endTraining refuses all trainers from now on: ranks or trainers differ, and it is unknown which
// is right.
func (c *Coordinator) endTraining(err error) {
	if c.agreed.conflict == nil {
		c.do(Log{LogError, "a data set cannot be served", -1, err})
		c.agreed.conflict = err
		c.failPlans(err.Error(), false)
	}
}

// Requests for plans

func (c *Coordinator) onPlanWanted(e PlanWanted) {
	if c.agreed.conflict != nil {
		c.refuse(e.Ticket, c.agreed.conflict)
		return
	}
	to := place{e.Epoch, e.Batch}
	if c.newLife(e.Trainer) {
		c.waiting = append(c.waiting, e)
		c.tell(Restarted{c.cfg.Rank, e.Trainer, e.Epoch, e.Batch})
		c.beginAnew(e.Trainer, to)
		return
	}
	if err := c.join(e.Trainer); err != nil {
		c.refuse(e.Ticket, err)
		return
	}
	c.move(e.Trainer, to)
	if _, waits := c.wishes[e.Trainer]; waits && c.begun && !c.weighted && c.agreed.known() {
		c.do(PlanBeside{e.Ticket, e.Trainer, e.Epoch, c.agreed.processes()})
		return
	}
	c.waiting = append(c.waiting, e)
	if c.refused != nil {
		c.failPlans(c.refused.Error(), false)
	}
	c.answerPlans()
}

// answerPlans answers every PlanWanted whose plan is ready.
func (c *Coordinator) answerPlans() {
	c.waiting = slices.DeleteFunc(c.waiting, func(w PlanWanted) (answered bool) {
		plan := c.Plan(w.Epoch)
		// All ranks must have the same plan, and be able to make it again.
		scores, kept := c.sources.own(w.Epoch)
		same := !c.weighted || kept && c.sources.agreed(w.Epoch)
		if _, waits := c.anew[w.Trainer]; waits || plan == nil || !same {
			return false
		}
		c.do(AnswerPlan{Ticket: w.Ticket, Trainer: w.Trainer, Plan: plan, Scores: scores})
		return true
	})
}

// failPlans answers all waiting plan requests with an error.
func (c *Coordinator) failPlans(why string, retry bool) {
	waiting := c.waiting
	c.waiting = nil
	for _, w := range waiting {
		c.do(Refuse{w.Ticket, retry, why})
	}
}

// refusePlans answers waiting plan requests with the reason why no plan can be made. A retry may
// succeed when trainers report something else.
func (c *Coordinator) refusePlans(err error) {
	if c.refused == nil || c.refused.Error() != err.Error() {
		c.do(Log{LogError, "no plan can be made", -1, err})
		c.tell(Declined{c.cfg.Rank, err.Error()})
	}
	c.refused, c.want = err, noEpoch
	c.failPlans(err.Error(), false)
}

func (c *Coordinator) refuse(ticket uint64, err error) {
	c.do(Refuse{Ticket: ticket, Why: err.Error()})
}

func (c *Coordinator) cancel(ticket uint64) {
	c.waiting = slices.DeleteFunc(c.waiting, func(w PlanWanted) bool { return w.Ticket == ticket })
	c.saves = slices.DeleteFunc(c.saves, func(w waitingSave) bool { return w.ticket == ticket })
}

func (c *Coordinator) tell(e Event) {
	if c.cfg.Ranks > 1 {
		c.do(Tell{e})
	}
}

func (c *Coordinator) onTicked() {
	// The stager needs all trainers; the first plan needs what each reports of its training.
	if c.agreed.missing > 0 || c.begun && !c.agreed.known() {
		c.waiting = slices.DeleteFunc(c.waiting, func(w PlanWanted) (refused bool) {
			if refused = c.now-w.Now >= missedAfter; refused {
				c.do(Refuse{w.Ticket, true, c.agreed.whoIsMissing()})
			}
			return refused
		})
	}
	if len(c.saves) > 0 && c.now > c.saves[0].deadline {
		c.answerSaves()
	}
	c.answerSaved()
}

// Moving from epoch to epoch. Two epochs are open at a time; a third replaces the older one. A
// single trainer cannot close an epoch that others need: it may move to an open epoch, or to the
// next one once no trainer here is left behind. (Trainers of other ranks delay it through their
// missing scores, if its plan needs scores.) To any other epoch trainers move together, once each
// has asked for it: all trainers or, if the sampler uses no scores, those of this rank, so that a
// silent rank does not delay the others.

// Knows reports whether epoch is open and its plan still exists.
func (c *Coordinator) Knows(epoch int) bool { return c.plans[epoch] != nil }

// Plan returns the plan of an open epoch, or nil.
func (c *Coordinator) Plan(epoch int) *plan.Plan { return c.plans[epoch] }

// isNext reports whether training may move to epoch.
func (c *Coordinator) isNext(epoch int) bool {
	n := len(c.opened)
	if n == 0 {
		return true // a new rank follows the first trainer
	}
	if epoch != c.opened[n-1]+1 {
		return false
	}
	return n == 1 || !slices.ContainsFunc(c.agreed.locals(c.cfg.Rank), func(t int) bool {
		at, ok := c.finish[t]
		return ok && at.epoch < c.opened[n-1]
	})
}

// move moves a trainer of this rank to a place, and tells the other ranks. If the trainer may not
// move there yet, it waits.
func (c *Coordinator) move(trainer int, to place) {
	if !c.Knows(to.epoch) && !c.isNext(to.epoch) {
		c.tell(Wished{c.cfg.Rank, trainer, to.epoch, to.batch})
		c.wish(trainer, to)
		return
	}
	delete(c.wishes, trainer)
	c.tell(Moved{c.cfg.Rank, trainer, to.epoch, to.batch})
	c.finishEpochs(trainer, to)
	c.wantPlan(to.epoch, to.batch)
	c.grant()
}

// wish records where a trainer waits to move to, and moves all trainers once they all wait for the
// same epoch.
func (c *Coordinator) wish(trainer int, to place) {
	c.wishes[trainer] = to
	for t, rank := range c.agreed.world {
		if int(rank) != c.cfg.Rank && c.begun && !c.weighted {
			continue
		}
		w, ok := c.wishes[t]
		if !ok || w.epoch != to.epoch {
			return
		}
		to.batch = min(to.batch, w.batch)
	}
	for _, t := range slices.Sorted(maps.Keys(c.wishes)) {
		c.finishEpochs(t, to)
	}
	clear(c.wishes)
	if !c.Knows(to.epoch) {
		c.nextGeneration()
	}
	c.wantPlan(to.epoch, to.batch)
}

// grant moves the waiting trainers of this rank that may move now. A rank that has no trainers, or
// was started again, follows the others.
func (c *Coordinator) grant() {
	locals := c.agreed.locals(c.cfg.Rank)
	for _, t := range locals {
		if to, ok := c.wishes[t]; ok && (c.Knows(to.epoch) || c.isNext(to.epoch)) {
			c.move(t, to)
		}
	}
	if !c.begun || len(c.finish) == 0 || len(locals) > 0 && !c.startedAgain(locals) {
		return // before Begun, a trainer may still open here
	}
	next, newest := math.MaxInt, 0
	for _, at := range c.finish {
		next, newest = min(next, at.epoch), max(newest, at.epoch)
	}
	if n := len(c.opened); n > 0 {
		next = c.opened[n-1] + 1
	}
	if next <= newest && c.isNext(next) {
		c.wantPlan(next, c.first(next))
	}
}

// startedAgain reports whether this rank has no plan although its trainers had one: they may be
// waiting for trainers of other ranks, which get no plan before this rank has made it, too.
func (c *Coordinator) startedAgain(locals []int) bool {
	return len(c.opened) == 0 && c.want == noEpoch &&
		!slices.ContainsFunc(locals, func(t int) bool {
			training := c.agreed.trainings[t]
			return training == nil || len(training.Planned) == 0
		})
}

// first returns the batch at which training begins an epoch.
func (c *Coordinator) first(epoch int) int {
	first := math.MaxInt
	for _, at := range c.finish {
		if at.epoch == epoch {
			first = min(first, at.batch)
		}
	}
	if first == math.MaxInt { // trainers ahead have finished it
		return 0
	}
	return first
}

// finishEpochs records that a trainer moved to another epoch.
func (c *Coordinator) finishEpochs(trainer int, to place) {
	c.finish[trainer] = to
	if c.folds() {
		c.ledger.Finish(trainer, to.epoch)
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
	delete(c.wishes, trainer)
	if err := c.join(trainer); err != nil { // its rank did not know this rank's trainers yet
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

// Lives. Ranks may serve several trainings one after another: trainers load a checkpoint during
// training, torchrun restarts them, or another training connects. Once all trainers have begun a
// new life, all ranks discard the state of the previous one, above all its importance, and the
// first plan is made as at the start. Until then trainers that have begun it wait.

// newLife reports whether a trainer requests its first plan in a life other than the current one.
func (c *Coordinator) newLife(trainer int) bool {
	t := c.agreed.trainings[trainer]
	j, ok := c.joined[trainer]
	return t != nil && ok && (j.life != t.Life || j.turn != t.Turn) && c.ledger != nil
}

// join records that a trainer has joined. Trainers that begin together must resume from the same
// checkpoint.
func (c *Coordinator) join(trainer int) error {
	t := c.agreed.trainings[trainer]
	if t == nil {
		return nil
	}
	was, again := c.joined[trainer]
	if again && was.life == t.Life && was.turn == t.Turn {
		return nil
	}
	j := joined{t.Life, t.Turn, len(t.Planned) == 0, !again, t.Checkpoint}
	for _, u := range slices.Sorted(maps.Keys(c.joined)) {
		other := c.joined[u]
		together := j.begins && j.first && other.begins && other.first
		if together && !reflect.DeepEqual(j.checkpoint, other.checkpoint) {
			return differentCheckpoints(u, other.checkpoint, trainer, j.checkpoint)
		}
	}
	c.joined[trainer] = j
	return nil
}

// beginAnew records that a trainer begins a new life at a place; once all trainers do, the life
// begins.
func (c *Coordinator) beginAnew(trainer int, at place) {
	c.anew[trainer] = at
	if len(c.anew) < len(c.agreed.world) {
		return
	}
	for _, other := range c.anew {
		at.epoch, at.batch = max(at.epoch, other.epoch), min(at.batch, other.batch)
	}
	c.life = noLife()
	c.cancel(0)
	c.learner = c.cfg.Learner()
	c.nextGeneration()
	for t := range c.agreed.world {
		if err := c.join(t); err != nil {
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
	if at, ok := c.finish[r.Trainer]; ok && r.Epoch < at.epoch {
		return // the trainer has left the epoch: its reports are final
	}
	c.tell(r)
	c.take(r)
}

// folds reports whether the ledger accepts reports. A restored ledger does not until the epoch that
// it was restored at is open; reports that arrive before are held, and folded first.
func (c *Coordinator) folds() bool { return c.ledger != nil && c.restored == nil }

// take passes a report to the ledger, or holds it until its epoch opens.
func (c *Coordinator) take(r Trained) {
	if c.folds() && c.ledger.Opened(r.Epoch) {
		c.report(r)
		c.fold()
	} else if len(c.opened) == 0 || r.Epoch > c.newest() {
		c.hold(r)
	}
}

func (c *Coordinator) newest() int { return c.opened[len(c.opened)-1] }

// hold keeps a report for later. A trainer that reconnects before there is a plan resends all its
// reports.
func (c *Coordinator) hold(r Trained) {
	held, at := c.heldBy[r.Trainer], place{r.Epoch, r.Batch}
	if held == nil {
		held = map[place]bool{}
		c.heldBy[r.Trainer] = held
	}
	if !held[at] {
		held[at] = true
		c.held = append(c.held, r)
	}
}

func (c *Coordinator) report(r Trained) {
	if err := c.ledger.Report(r.Trainer, r.Epoch, r.Batch, r.Losses, r.Embeddings); err != nil {
		c.do(Log{LogError, "a report was not taken", r.Rank, err})
	}
}

// fold folds what is final, refreshes predictions, and continues to plan when the cut is reached.
func (c *Coordinator) fold() {
	ready := c.ledger.Fold(func(f Folded) {
		scored := c.ledger.Rescore(f)
		if c.learner != nil {
			c.learner.Learn(f, c.ledger.Scores())
		}
		c.do(scored)
	})
	if ready && c.cut == nil {
		c.plan()
	}
	c.answerSaves()
}

// Planning

// wantPlan requests the plan of epoch, beginning at batch from, unless it exists.
func (c *Coordinator) wantPlan(epoch, from int) {
	if c.Knows(epoch) {
		return
	}
	if c.begun && len(c.opened) > 0 && epoch == c.newest()+1 {
		from = 0 // the first trainer may be ahead of the others
	}
	if c.want != epoch {
		c.want, c.from = epoch, from
	}
	c.from = min(c.from, from)
	c.plan()
}

// plan makes the plan that is due, if its scores have arrived: that of the requested epoch, else
// that of the one after the newest.
func (c *Coordinator) plan() {
	if !c.begun || c.making != nil || c.reading {
		return
	}
	epoch := c.want
	if epoch == noEpoch {
		if len(c.opened) == 0 || c.ahead != nil {
			return
		}
		if epoch = c.newest() + 1; c.behindLast(epoch) {
			return
		}
	}
	if !c.agreed.known() {
		return
	}
	if c.weighted && c.ledger == nil {
		first, ok := c.restore(epoch)
		if !ok {
			return
		}
		if epoch = first; first > c.want {
			// the requested epoch can no longer be planned: training is ahead of it
			c.want, c.from = first, 0
		}
	}
	if c.weighted && c.cut == nil {
		if !c.ledger.Ready() {
			return
		}
		c.takeCut()
	}
	m := MakePlan{
		Epoch: epoch, Scores: c.cut, Stream: c.streamID(), Cuts: c.cutsBefore(epoch),
		Learned: c.learned, Processes: c.agreed.processes(),
	}
	if a := c.ahead; a != nil && a.epoch == epoch {
		c.install(a)
		return
	}
	c.making = &planning{
		epoch: epoch, base: c.cut, learned: c.learned, generation: c.sources.generation,
	}
	c.do(m)
}

// behindLast reports whether epoch comes after the last one of the training.
func (c *Coordinator) behindLast(epoch int) bool {
	epochs := cmp.Or(c.agreed.spec.Epochs, c.cfg.Epochs)
	return epochs > 0 && epoch >= epochs
}

// takeCut records what the next epoch is planned from.
func (c *Coordinator) takeCut() {
	c.cut = c.ledger.Take()
	if c.learner != nil {
		c.learned = c.learner.Cut(c.cut)
	}
}

// onPlanMade installs a new plan if it was requested; otherwise the plan waits and its first
// samples are staged.
func (c *Coordinator) onPlanMade(e PlanMade) {
	m := c.making
	c.making, m.plan = nil, e.Plan
	if m.generation != c.sources.generation {
		c.plan() // training has moved on
		return
	}
	if c.weighted {
		c.keeping[m.epoch] = e.Scores
		c.do(KeepState{c.sourceOf(m), c.sources.generation})
	}
	switch {
	case m.epoch == c.want, c.restored != nil && c.restored.Epoch == m.epoch:
		c.install(m)
	case c.want == noEpoch:
		c.ahead = m
		c.stage(Stage{Plan: m.plan, Base: m.base})
	default:
		c.plan() // another epoch was requested meanwhile
	}
}

// install makes a plan the newest epoch's: reports refer to it from now on, and trainers may get
// it.
func (c *Coordinator) install(made *planning) {
	plan, base := made.plan, made.base
	from, trained := 0, plan.Batches()
	if plan.Epoch == c.want {
		from = min(c.from, plan.Batches()) // epochs may differ in length
		trained = from
		c.want = noEpoch
	}
	if c.ahead != made {
		c.stage(Stage{Plan: plan, From: from, Base: base})
	}
	c.ahead = nil
	c.open(plan)
	c.made, c.cut = made, nil
	train := Train{Epoch: plan.Epoch, Draws: plan.Draws}
	if c.weighted {
		train.Scores = base
		if c.chooses {
			c.cuts = append(c.cutsBefore(plan.Epoch), Cut{plan.Epoch, base})
		}
		c.ledger.Open(plan)
		if c.learner != nil {
			c.learner.Open(plan, made.learned)
		}
		restored := c.restored != nil && c.restored.Epoch == plan.Epoch
		if restored {
			c.ledger.Resume(c.restored, trained)
		}
		c.restored = nil
		// After open, which may have folded the rest of an old epoch.
		c.do(c.ledger.Rescore(Folded{Epoch: -1}))
		if !c.checkpointed && !restored && c.savesFiles() {
			c.save(SaveState{Snap: c.sourceOf(made)})
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

// stage passes a plan to the stager, which must have scores by then: it uses them as soon as
// batches enter its window.
func (c *Coordinator) stage(s Stage) {
	if c.weighted && !c.scored {
		c.scored = true
		c.do(c.ledger.Rescore(Folded{Epoch: -1}))
	}
	c.do(s)
}

// open opens an epoch, and closes all but the newest two.
func (c *Coordinator) open(p *plan.Plan) {
	c.opened = append(c.opened, p.Epoch)
	c.opened = c.opened[max(0, len(c.opened)-2):]
	c.plans[p.Epoch] = p
	maps.DeleteFunc(c.plans, func(epoch int, _ *plan.Plan) bool {
		return !slices.Contains(c.opened, epoch)
	})
}

// takeHeld handles the held reports of open epochs, in order of arrival, and then the ends of
// epochs.
func (c *Coordinator) takeHeld() {
	held := c.held
	c.held = nil
	clear(c.heldBy)
	for _, r := range held {
		if c.ledger.Opened(r.Epoch) {
			c.report(r)
		} else if r.Epoch > c.newest() {
			c.hold(r)
		}
	}
	for trainer, at := range c.finish {
		c.ledger.Finish(trainer, at.epoch)
	}
	for trainer := range c.savesAt {
		c.settle(trainer)
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

// sourceOf returns the state that an epoch's plan was made from, or can be made again from.
func (c *Coordinator) sourceOf(m *planning) *Snapshot {
	if c.restored != nil && c.restored.Epoch == m.epoch {
		again := *c.restored
		again.Stream = c.streamID()
		return &again
	}
	snap := &Snapshot{Epoch: m.epoch, Scores: m.base}
	switch c.ledger.newest() {
	case m.epoch:
		snap = c.ledger.Snapshot(m.base, 0)
	case m.epoch - 1:
		snap = c.ledger.SnapshotNext(m.base)
	}
	c.describe(snap, m.learned)
	return snap
}

// describe fills in what a snapshot's plan is made from besides scores.
func (c *Coordinator) describe(snap *Snapshot, learned Learned) {
	snap.Stream, snap.Cuts = c.streamID(), c.cutsBefore(snap.Epoch)
	snap.Learned = learned
}

// cutsBefore returns the cuts of the epochs before epoch. The caller may keep the result.
func (c *Coordinator) cutsBefore(epoch int) []Cut {
	n := 0
	for n < len(c.cuts) && c.cuts[n].Epoch < epoch {
		n++
	}
	return c.cuts[:n:n]
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
	c.do(ForgetStates{Before: slices.Min(append(slices.Clone(c.opened), e.Epoch))})
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
		c.do(ReadStates{c.streamID(), c.wantedState()})
		return 0, false
	}
	spec := c.agreed.spec
	scorer, err := NewScorer(c.scorer())
	if err != nil {
		panic("scheduler: " + err.Error())
	}
	equal := func() []float32 {
		return EqualScores(c.cfg.Samples, scorer.Initial(spec.BatchSize*spec.World))
	}
	from, err := c.origin(place{epoch, c.from}, equal)
	if err != nil {
		c.refusePlans(err)
		return 0, false
	}
	if from.warning != "" {
		c.do(Log{LogWarning, from.warning, -1, nil})
	}
	ledger, learned := (*Ledger)(nil), Learned(nil)
	switch {
	case from.snap == nil:
		ledger = NewLedger(scorer, equal())
	case from.alone:
		ledger = NewLedger(scorer, RestoreLedger(scorer, from.snap, spec.World, false).FoldAll())
	default:
		ledger, learned = RestoreLedger(scorer, from.snap, spec.World, from.sameTrainers),
			from.snap.Learned
	}
	if c.learner != nil {
		if err := c.learner.Begin(ledger.Scores(), learned.bytes()); err != nil {
			c.refusePlans(err)
			return 0, false
		}
	}
	ledger.Embed(spec.Embeddings)
	c.ledger = ledger
	if from.snap == nil || from.alone {
		return epoch, true
	}
	c.restored, c.cuts = from.snap, from.snap.Cuts
	c.cut, c.learned = from.snap.Scores, learned
	return from.snap.Epoch, true
}

func (c *Coordinator) onStatesRead(e StatesRead) {
	c.reading = false
	if c.readFor == c.sources.generation {
		c.states = &e
	}
	c.plan()
}

// wantedState returns the digest of the state that training resumes from, "" if there is none.
func (c *Coordinator) wantedState() Digest {
	for _, t := range c.agreed.trainings {
		if t != nil && t.Checkpoint != nil {
			return t.Checkpoint.State // if others differ, training is refused
		}
	}
	return ""
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
		c.checkpointed = true
	}
	c.putAside = err == nil && checkpoint == nil && !n.begun() &&
		(n.File.ofCheckpoint() || n.Previous.ofCheckpoint())
	if n.begun() && n.File.ofCheckpoint() {
		c.checkpointed = true // it belongs to a checkpoint made before the ranks were restarted
	}
	return n.decide()
}

// scorer returns the name of the scorer.
func (c *Coordinator) scorer() string {
	return cmp.Or(c.cfg.Scorer, DefaultScorer(c.agreed.spec.Sampler))
}

// streamID returns the identity of the stream that the importance belongs to.
func (c *Coordinator) streamID() StreamID {
	spec := c.agreed.spec
	return StreamID{
		Data: c.cfg.Data, Identity: c.cfg.Identity, Samples: c.cfg.Samples,
		Sampler: spec.Sampler, Scorer: c.scorer(), Options: c.cfg.Options,
		Seed: spec.Seed, Batch: spec.BatchSize * spec.World,
		DropLast: spec.DropLast, SamplerDropLast: spec.SamplerDropLast,
		Embeddings: spec.Embeddings, Plan: plan.Version,
	}
}

// Saving. For a checkpoint each trainer asks its rank to save. All ranks compute the same digest of
// the importance at that place, which the checkpoint will contain; rank 0 writes the state file,
// and tells the others when it is on disk: only then may a trainer know the digest.
// The end of an epoch is the beginning of the next: the state there is the same whether or not the
// next epoch is open.

func (c *Coordinator) onSaveWanted(e SaveWanted) {
	if c.begun && !c.weighted {
		c.do(AnswerSave{Ticket: e.Ticket})
		return
	}
	if err := c.join(e.Trainer); err != nil {
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
	c.saves = append(c.saves, waitingSave{ticket, at, c.now + saveTimeout})
	c.savesThere(trainer, at)
	if c.ledger == nil && c.isNext(at.epoch) {
		c.wantPlan(at.epoch, at.batch) // this rank was restarted
	}
}

// savesThere records that a trainer saves at a place: it will send no more reports of batches
// before it.
func (c *Coordinator) savesThere(trainer int, at place) {
	c.checkpointed = true
	c.savesAt[trainer] = at
	if c.folds() {
		c.settle(trainer)
		c.fold()
	}
	c.answerSaves()
}

// settle ends the epoch of a trainer that saves at its end.
func (c *Coordinator) settle(trainer int) {
	next := place{c.ledger.newest() + 1, 0}
	if at, told := c.savesAt[trainer]; told && c.canonical(at) == next {
		c.ledger.Finish(trainer, next.epoch)
	}
}

// canonical returns the end of an epoch as the beginning of the next one.
func (c *Coordinator) canonical(at place) place {
	if plan := c.Plan(at.epoch); plan != nil && at.batch >= plan.Batches() {
		return place{at.epoch + 1, 0}
	}
	return at
}

// answerSaves answers every SaveWanted whose state is complete or that has timed out.
func (c *Coordinator) answerSaves() {
	c.saves = slices.DeleteFunc(c.saves, func(w waitingSave) (answered bool) {
		at := c.canonical(w.at)
		switch {
		case c.saved != nil && c.saved.at == at:
			c.attach(c.saved, w.ticket)
		case c.folds() && c.complete(at):
			c.saved = &savedState{at: at}
			c.attach(c.saved, w.ticket)
			c.saveAt(c.saved)
		case c.now > w.deadline:
			c.answerSave(AnswerSave{Ticket: w.ticket})
		default:
			return false
		}
		return true
	})
}

func (c *Coordinator) attach(s *savedState, ticket uint64) {
	if s.onDisk {
		c.answerSave(AnswerSave{ticket, s.path, s.digest})
		return
	}
	s.waiting = append(s.waiting, ticket)
}

func (c *Coordinator) answerSave(a AnswerSave) {
	if a.Ticket != 0 {
		c.do(a)
	}
}

// complete reports whether the ledger has all reports before a place, and can make a snapshot of
// it.
func (c *Coordinator) complete(at place) bool {
	newest := c.ledger.newest()
	p := c.ledger.find(newest)
	switch {
	case at.epoch == newest:
		for t := range c.agreed.world {
			finished, known := c.finish[t]
			here := int(p.final[t]) >= at.batch && (at.batch > 0 || known && finished.epoch >= newest)
			if told, ok := c.savesAt[t]; !here && (!ok || c.canonical(told) != at) {
				return false
			}
		}
		return true
	case at == place{newest + 1, 0}:
		plan := c.Plan(newest)
		return plan != nil && (c.cut != nil || c.behindLast(at.epoch)) &&
			c.ledger.Final(newest) == plan.Batches()
	}
	return false
}

// saveAt requests that the state of a place be written; its waiting saves are answered after that.
func (c *Coordinator) saveAt(s *savedState) {
	var snap *Snapshot
	if s.at.epoch == c.ledger.newest() {
		c.ledger.settle(s.at.batch)
		snap = c.ledger.Snapshot(c.made.base, s.at.batch)
		snap.Final = s.at.batch // even if trainers report nothing
		c.describe(snap, c.made.learned)
	} else {
		if c.cut == nil {
			c.takeCut() // nothing is planned after the last epoch
		}
		snap = c.ledger.SnapshotNext(c.cut)
		c.describe(snap, c.learned)
	}
	snap.Checkpoint = true
	c.lastSave++
	c.saving[c.lastSave] = s
	c.save(SaveState{ID: c.lastSave, Snap: snap, Previous: true})
}

// save requests that a state be written.
func (c *Coordinator) save(s SaveState) {
	s.Anew, c.putAside = c.putAside, false
	c.do(s)
}

func (c *Coordinator) onStateSaved(e StateSaved) {
	s := c.saving[e.ID]
	if s == nil {
		return
	}
	s.digest, s.deadline = e.Digest, c.now+saveTimeout
	saved := Saved{c.cfg.Rank, e.Path, e.Digest}
	switch {
	case c.cfg.Rank == 0:
		c.tell(saved)
		c.onSaved(saved)
	case c.cfg.StatePath == "":
		c.onSaved(saved)
	default:
		c.answerSaved()
	}
}

func (c *Coordinator) onSaved(e Saved) {
	c.onDisk = e
	c.answerSaved()
}

// answerSaved answers the saves whose state is now on disk, and those that have waited too long.
func (c *Coordinator) answerSaved() {
	for _, id := range slices.Sorted(maps.Keys(c.saving)) {
		s := c.saving[id]
		a := AnswerSave{}
		switch {
		case s.digest == "":
			continue
		case s.digest == c.onDisk.State:
			s.onDisk, s.path = true, c.onDisk.Path
			a.Path, a.State = s.path, s.digest
		case c.now <= s.deadline:
			continue
		case c.saved == s:
			c.saved = nil
		}
		delete(c.saving, id)
		for _, a.Ticket = range s.waiting {
			c.answerSave(a)
		}
		s.waiting = nil
	}
}

// savesFiles reports whether this rank writes the state file.
func (c *Coordinator) savesFiles() bool { return c.cfg.StatePath != "" && c.cfg.Rank == 0 }

// onFinished saves the final state, unless the state file belongs to a checkpoint.
func (c *Coordinator) onFinished() {
	if c.ledger != nil && len(c.opened) > 0 && !c.checkpointed && c.savesFiles() {
		final := c.ledger.Final(c.newest())
		snap := c.ledger.Snapshot(c.made.base, final)
		snap.Stream = c.streamID()
		c.save(SaveState{Snap: snap})
	}
}

// Queries between events

// Spec returns the spec that the trainers agree on, or that of the first one; nil if none has
// opened the data set.
func (c *Coordinator) Spec() *Spec { return c.agreed.spec }

// World returns the rank of each trainer, -1 for a missing one. The caller must not change it.
func (c *Coordinator) World() []int32 { return c.agreed.world }

// Complete reports whether all trainers have opened the data set.
func (c *Coordinator) Complete() bool { return c.agreed.spec != nil && c.agreed.missing == 0 }

// Remembers reports whether c expects the training that this rank served before it was restarted.
func (c *Coordinator) Remembers() bool { return c.agreed.before != nil }

// Conflict returns why the data set cannot be served, or nil.
func (c *Coordinator) Conflict() error { return c.agreed.conflict }

// Has reports whether trainer opened the data set on rank.
func (c *Coordinator) Has(trainer, rank int) bool { return c.agreed.has(trainer, rank) }

// Locals returns the trainers of this rank.
func (c *Coordinator) Locals() []int { return c.agreed.locals(c.cfg.Rank) }

// Open returns the open epochs, the newest last. The caller must not change the result.
func (c *Coordinator) Open() []int { return c.opened }

// First returns the batch at which the epoch requested last begins.
func (c *Coordinator) First() int { return c.from }

// In returns the epoch that a trainer moved to last.
func (c *Coordinator) In(trainer int) (epoch int, ok bool) {
	at, ok := c.finish[trainer]
	return at.epoch, ok
}

// Held returns how many reports of a trainer are held, and whether one of this batch is.
func (c *Coordinator) Held(trainer, epoch, batch int) (held int, this bool) {
	by := c.heldBy[trainer]
	return len(by), by[place{epoch, batch}]
}

// Weighted reports whether the stager exists and its sampler draws by importance.
func (c *Coordinator) Weighted() bool { return c.weighted }

// Waiting returns the number of plan requests without an answer.
func (c *Coordinator) Waiting() int { return len(c.waiting) }

// Ledger returns the ledger, for reading only; nil before the first plan.
func (c *Coordinator) Ledger() *Ledger { return c.ledger }
