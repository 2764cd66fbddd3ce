package runlog

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"rankpool/mpicache/stats"
)

// maxMarks is how many marks of each kind are kept: more do not fit into a plot.
const maxMarks = 512

// A Builder builds a Run from events in the order of the log. The zero Builder is ready to use. It
// keeps only a few events, and an entry for each rank, each epoch and each bin of the timeline. It
// is not safe for concurrent use.
//
// Logs are appended to, so one may contain several jobs and trainings. A job ends with its summary,
// a new file, or the beginning of another launch. The next one is another training if its first
// epoch is 0 or earlier than the newest one; otherwise it continues the training. Within a job
// lines may be late and in any order of epochs. Only the last training is kept.
type Builder struct {
	run    Run
	clock  clock
	ranks  map[int]*rank
	epochs map[epochKey]*epochSum
	scores scores
	begin  *Begin         // the newest; nil: an older rankpool wrote the log
	again  bool           // begin is not the first of its launch: ranks restarted
	data   string         // of the epochs, "" before the first
	held   []Event        // of a job that has not named an epoch yet
	jobs   int            // finished jobs
	over   bool           // the newest job has ended
	begun  int            // the highest marked epoch, plus 1
	marks  [markKinds]int // of each kind
}

type epochKey struct {
	data  string
	epoch int
	event string // epoch, pass or job
	job   string
}

// epochSum is an epoch as counted by the earlier jobs and by this one.
type epochSum struct {
	job          int
	before, last stats.Epoch
}

// Add adds one event.
func (b *Builder) Add(e Event) {
	b.run.Events++
	switch {
	case e.Begin != nil:
		b.launched(e.Begin)
	case e.Node != nil:
		epoch := b.epochOf(e.Node)
		b.enter(epoch)
		b.node(e.Node, epoch)
	case e.Epoch != nil && e.Name == "epoch":
		b.enter(e.Epoch.Epoch)
		b.data = e.Epoch.Data
		b.take(e)
	case e.Epoch != nil, e.Importance != nil:
		b.beside(e)
	case e.Summary != nil:
		b.open()
		b.run.Ended, b.over = true, true
		b.run.Ranks = max(b.run.Ranks, e.Summary.Ranks)
		b.run.Wall += e.Summary.WallSeconds
		b.run.Data = cmp.Or(e.Summary.Data, b.run.Data)
	default:
		b.run.Unknown++
	}
}

// NextFile starts another file.
func (b *Builder) NextFile() { b.over = b.over || b.told() }

// told reports whether the training so far has any content.
func (b *Builder) told() bool { return len(b.ranks)+len(b.epochs) > 0 }

// launched handles the start of a rank 0.
func (b *Builder) launched(begin *Begin) {
	b.open()
	b.again = b.begin != nil && begin.Launch == b.begin.Launch
	if !b.again {
		b.over = b.over || b.told()
		b.held = nil
	}
	b.begin = begin
	if !b.over {
		b.adopt()
	}
}

// adopt copies the newest begin into the training.
func (b *Builder) adopt() {
	if b.begin == nil {
		return
	}
	b.run.Data, b.run.Ranks = b.begin.Data[0], max(b.run.Ranks, b.begin.Ranks)
	if !b.begin.Time.IsZero() && b.clock.begin.IsZero() {
		b.clock.advance(b.begin.Time, b.begin.Time, false)
	}
}

// epochOf returns the training's epoch of a rank's line, -1 for none: before the first epoch, ranks
// report passes over another data set, which have numbers of their own.
func (b *Builder) epochOf(n *stats.Reading) int {
	trained := b.data
	if b.begin != nil {
		trained = b.begin.Data[0]
	}
	if trained != "" && n.Data != "" && n.Data != trained {
		return -1
	}
	return n.Epoch
}

// AddBroken counts invalid lines.
func (b *Builder) AddBroken(lines int64) { b.run.Broken += lines }

// enter records that training is or was in an epoch; -1 means before the first.
func (b *Builder) enter(epoch int) {
	b.open()
	if epoch < 0 {
		return
	}
	if b.over {
		b.nextJob(epoch)
	}
	b.run.Newest = max(b.run.Newest, epoch)
	held := b.held
	b.held = nil
	for _, e := range held {
		b.take(e)
	}
}

// nextJob starts the job after a finished one, with its first epoch.
func (b *Builder) nextJob(epoch int) {
	if newest := b.run.Newest; newest >= 0 && (epoch == 0 || epoch < newest) {
		run := b.run
		*b = Builder{begin: b.begin, again: b.again, held: b.held}
		b.open()
		b.run.Events, b.run.Broken, b.run.Unknown, b.run.Earlier = run.Events, run.Broken, run.Unknown,
			run.Earlier+1
	} else {
		b.over, b.run.Ended = false, false
		b.jobs++
	}
	b.adopt()
}

// maxHeld bounds the events that are kept from a job that has not named an epoch yet: plans are
// made for two epochs, and there are few passes before training.
const maxHeld = 8

// beside handles a pass, an epoch of a training with a job name, or a distribution. They may
// precede the first epoch of their job, when their training is not known yet: scores are logged
// when an epoch is planned, and a pass may precede all training.
func (b *Builder) beside(e Event) {
	b.open()
	if b.over || e.Importance != nil && b.run.Newest < 0 {
		b.held = append(b.held[max(0, len(b.held)-maxHeld+1):], e)
		return
	}
	b.take(e)
}

// take handles an event of the training.
func (b *Builder) take(e Event) {
	if e.Importance != nil {
		b.scores.add(e.Importance)
		return
	}
	b.epoch(e.Epoch, e.Name)
}

// open initialises the zero Builder.
func (b *Builder) open() {
	if b.ranks == nil {
		b.ranks, b.epochs, b.run.Newest = map[int]*rank{}, map[epochKey]*epochSum{}, -1
	}
}

func (b *Builder) epoch(e *stats.Epoch, event string) {
	key := epochKey{e.Data, e.Epoch, event, e.Job}
	sum := b.epochs[key]
	switch {
	case sum == nil:
		sum = &epochSum{job: b.jobs}
		b.epochs[key] = sum
	case sum.job != b.jobs:
		sum.before = *addEpoch(&sum.before, &sum.last)
		sum.job = b.jobs
	}
	sum.last = *e
	if event == "epoch" {
		b.run.Data = cmp.Or(e.Data, b.run.Data)
	}
	if !e.Time.IsZero() && !b.clock.begin.IsZero() {
		b.clock.advance(e.Time, e.Time, false)
	}
}

// addEpoch returns the sum of two jobs' parts of an epoch, with the name of the second.
func addEpoch(a, b *stats.Epoch) *stats.Epoch {
	s := *b
	s.Add(a.Sums)
	s.Join(a.Benefit)
	return &s
}

func (b *Builder) mark(m Mark) {
	if b.marks[m.Kind]++; b.marks[m.Kind] <= maxMarks {
		b.run.Marks = append(b.run.Marks, m)
	}
}

// restartSpan is the time within which restarts of ranks count as one.
const restartSpan = 60.0

// restarted handles the first line of a rank that restarted in an epoch.
func (b *Builder) restarted(n *stats.Reading, epoch int, at float64) {
	m := b.newestRestart()
	if m == nil || math.Abs(m.At-at) >= restartSpan {
		b.mark(Mark{Kind: Restarted, Epoch: epoch, Rank: n.Rank, At: at})
		if m = b.newestRestart(); m.At != at {
			return // there are too many
		}
	}
	m.Nodes++
	if n.KeptOf > 0 {
		m.Warm++
		m.Kept += n.Kept
		m.KeptOf += n.KeptOf
	}
}

// newestRestart returns the newest mark of a restart, nil if there is none.
func (b *Builder) newestRestart() *Mark {
	for i, m := range slices.Backward(b.run.Marks) {
		if m.Kind == Restarted {
			return &b.run.Marks[i]
		}
	}
	return nil
}

// epochBegun marks the first line of an epoch.
func (b *Builder) epochBegun(epoch int, at float64) {
	if epoch >= b.begun {
		b.begun = epoch + 1
		b.mark(Mark{Kind: EpochBegun, Epoch: epoch, At: at})
	}
}

// Run returns the run of the events so far. The caller owns it; the Builder must not be used again.
func (b *Builder) Run() *Run {
	b.open()
	r := &b.run
	r.Importance = b.scores.distributions
	r.Jobs = b.jobs
	if r.Events > 0 {
		r.Jobs++
	}
	r.Begin = b.clock.begin
	if !r.Begin.IsZero() {
		r.Seconds = b.clock.second(b.clock.last)
	}
	for _, number := range slices.Sorted(maps.Keys(b.ranks)) {
		k := b.ranks[number]
		k.run.Silent = max(0, r.Seconds-b.clock.second(k.at))
		r.Nodes = append(r.Nodes, k.run)
	}
	r.Ranks = max(r.Ranks, len(r.Nodes))
	for key, sum := range b.epochs {
		e := *addEpoch(&sum.before, &sum.last)
		switch key.event {
		case "pass":
			r.Passes = append(r.Passes, e)
		case "job":
			r.Trainings = append(r.Trainings, e)
		default:
			r.Epochs = append(r.Epochs, e)
		}
	}
	byEpoch := func(a, b stats.Epoch) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Data, b.Data))
	}
	slices.SortFunc(r.Epochs, byEpoch)
	slices.SortFunc(r.Passes, byEpoch)
	slices.SortFunc(r.Trainings, func(a, b stats.Epoch) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), byEpoch(a, b))
	})
	slices.SortStableFunc(r.Marks, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	return r
}
