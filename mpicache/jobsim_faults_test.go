package mpicache

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/training"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

// simFault is something that happens to a job, after the global batch number step.
type simFault struct {
	name  string
	step  int
	delay time.Duration // it happens up to this long after that, or simAtOnce
	do    func(j *simJob)
}

// simAtOnce is the delay of a fault that happens before any trainer continues.
const simAtOnce = -1

func (f simFault) String() string { return fmt.Sprintf("%s after step %d", f.name, f.step) }

// simFaultKinds are what may happen.
var simFaultKinds = []simFault{
	{name: "a rank dies", delay: 20 * time.Millisecond, do: (*simJob).die},
	{name: "a rank dies", delay: 20 * time.Millisecond, do: (*simJob).die},
	{name: "a rank dies later", delay: 2 * time.Second, do: (*simJob).die},
	{name: "ranks die repeatedly", delay: 20 * time.Millisecond, do: (*simJob).dieOften},
	{name: "a rank is stopped for a while", delay: 50 * time.Millisecond, do: (*simJob).stop},
	{name: "a rank hangs", delay: 50 * time.Millisecond, do: func(j *simJob) {
		if r := j.some(); r != nil {
			r.stopped = true
		}
	}},
	{name: "the network is cut", delay: 50 * time.Millisecond, do: (*simJob).cutLink},
	{name: "the network is slow", do: func(j *simJob) {
		j.slow = j.clock.now + j.clock.upTo(3*time.Second)
	}},
	{name: "storage stalls", do: func(j *simJob) {
		j.stall = j.clock.now + j.clock.upTo(4*time.Second)
	}},
	{name: "memory is short", delay: 20 * time.Millisecond, do: (*simJob).pressure},
	{name: "a rank dies", delay: 20 * time.Millisecond, do: (*simJob).die},
	{name: "the data set changes, and a rank dies", do: (*simJob).rescan},
	{name: "memory is written to, and a rank dies", do: (*simJob).writeMemory},
	{name: "a sample changes", do: func(j *simJob) {
		j.bad[draw.SampleID(j.clock.rng.IntN(j.cfg.samples))] = true
	}},
	{name: "a rank is told to end", delay: 20 * time.Millisecond, do: (*simJob).shutDown},
	{name: "a second training comes", delay: 20 * time.Millisecond, do: (*simJob).newcomer},
	{name: "a second training comes", delay: 20 * time.Millisecond, do: (*simJob).newcomer},
	{name: "somebody says anything", delay: 20 * time.Millisecond, do: (*simJob).hostile},
	{name: "somebody says anything", delay: 20 * time.Millisecond, do: (*simJob).hostile},
	{name: "a rank dies", delay: 20 * time.Millisecond, do: (*simJob).die},
	{name: simRequeue, delay: 20 * time.Millisecond, do: (*simJob).requeue},
	{name: simRequeue, delay: 20 * time.Millisecond, do: (*simJob).requeue},
}

const simRequeue = "the job is requeued"

func newSimFaults(clock *simClock, c *simConfig) []simFault {
	var faults []simFault
	steps := c.epochs * c.samples / simGlobalBatch
	for range clock.rng.IntN(7) {
		f := simFaultKinds[clock.rng.IntN(len(simFaultKinds))]
		c.saves = c.saves || f.name == simRequeue // it needs a checkpoint
		f.step = 1 + clock.rng.IntN(steps)
		faults = append(faults, f)
	}
	slices.SortStableFunc(faults, func(a, b simFault) int { return a.step - b.step })
	return faults
}

// some returns one of the live ranks, or nil if there are none.
func (j *simJob) some() *simRank {
	if j.ranks == nil {
		return nil
	}
	r := j.ranks.all[j.clock.rng.IntN(len(j.ranks.all))]
	if r.dead {
		return nil
	}
	return r
}

func (j *simJob) die() { j.some().exit("killed") }

func (j *simJob) dieOften() {
	for i := range 2 + j.clock.rng.IntN(4) {
		j.clock.after(time.Duration(i)*400*time.Millisecond+j.clock.upTo(time.Second), nil, "",
			func() {
				if !j.closing {
					j.die()
				}
			})
	}
}

func (j *simJob) stop() {
	r := j.some()
	if r == nil || r.stopped {
		return
	}
	r.stopped = true
	j.clock.after(j.clock.upTo(6*time.Second), nil, "", func() {
		if !r.dead {
			j.clock.trace.note(r.name, "runs again")
			j.clock.cont(r.simProcess)
		}
	})
}

// cutLink cuts the link between two ranks, or all links of a rank, perhaps until the cache is
// restarted.
func (j *simJob) cutLink() {
	r := j.some()
	if r == nil || len(j.ranks.all) == 1 {
		return
	}
	other := (r.number + 1 + j.clock.rng.IntN(len(j.ranks.all)-1)) % len(j.ranks.all)
	until, whole := j.clock.now+j.clock.upTo(6*time.Second), j.clock.chance(2)
	if (!whole || j.clock.chance(2)) && (whole || until%2 == 0) {
		until = j.clock.now + time.Hour
	}
	for n := range j.ranks.all {
		if n == other || whole && n != r.number {
			j.ranks.cut[[2]int{min(r.number, n), max(r.number, n)}] = until
		}
	}
}

// part cuts the link between ranks 1 and 2 until the cache is restarted.
func (j *simJob) part() {
	if j.ranks == nil {
		panic("there are no ranks")
	}
	j.ranks.cut[[2]int{1, 2}] = j.clock.now + time.Hour
}

func (j *simJob) pressure() {
	r := j.some()
	if r == nil {
		return
	}
	h := &r.node.shrinker
	to := h.nowBytes
	j.clock.run(r.simProcess, "gives memory back", func() {
		h.shrink(j.clock.rng.Int64N(h.fullBytes / 2))
		h.sweep()
	})
	if j.planted("memory in use is returned") && h.nowBytes < to && !r.stopped && !r.dead {
		_ = r.node.slab.Release(0, to/2)
	}
}

// rescan changes the folder of the data set. Restarted ranks serve the index that the run keeps, so
// the most that can happen is that reads fail.
func (j *simJob) rescan() {
	r := j.some()
	if r == nil {
		return
	}
	if j.planted("F1 a restarted rank rescans the data") {
		for n := range j.shifted {
			j.shifted[n] = true
		}
	}
	r.exit("killed")
}

func (j *simJob) writeMemory() {
	r := j.some()
	if r == nil {
		return
	}
	j.machines[r.number].spoils = true
	r.exit("killed")
}

// requeue moves the job on, if there is a checkpoint.
func (j *simJob) requeue() {
	if j.checkpoint == nil {
		return
	}
	if j.planted("F5 training needs no state file") {
		_ = os.Remove(j.statePath())
		_ = os.Remove(training.PreviousState(j.statePath()))
	}
	j.moveOn()
}

// moveOn ends the job, and starts it again on other nodes.
func (j *simJob) moveOn() {
	j.requeues++
	for _, t := range j.trainers {
		t.dead = true
	}
	if j.ranks != nil {
		for _, r := range j.ranks.all {
			r.kill()
		}
		j.ranks.over, j.ranks = true, nil
	}
	j.launcher.dead = true
	j.launcher = &simProcess{name: "launcher"}
	shapes := [][3]int{{1, 1, 0}, {1, 2, 0}, {2, 1, 0}, {2, 2, 0}, {3, 1, 0}, {3, 2, 0}, {3, 1, 1}}
	s := shapes[j.clock.rng.IntN(len(shapes))]
	j.cfg.ranks, j.cfg.perRank, j.cfg.idle = s[0], s[1], s[2]
	for _, m := range j.machines {
		m.close()
		_ = os.RemoveAll(m.folder)
	}
	j.clock.trace.note("job", "is requeued", s[:]...)
	j.start()
}

func (j *simJob) shutDown() {
	r := j.some()
	if r == nil {
		return
	}
	c := j.stranger(r, door.ControlTrainer, 0)
	if c != nil {
		c.say(door.AppendFrame(nil, door.KindShutdown, 1, nil))
	}
}

// stranger connects another process to a rank.
func (j *simJob) stranger(r *simRank, trainer uint32, family uint64) *simConn {
	c := r.dial(&simProcess{name: "stranger"})
	if c == nil {
		return nil
	}
	c.reply = func(f door.Frame) { j.clock.trace.note("stranger", "reply", int(f.Kind)) }
	c.lost = func() { c.over = false; c.hangUp() }
	c.say(door.AppendHello(nil, 0, hello(trainer, uint32(j.cfg.world()), 99, family, family)))
	j.clock.after(5*time.Second, c.client, "", c.hangUp)
	return c
}

// seated reports whether all trainers have taken their seats on these ranks: before that, nobody
// can tell who the stranger is.
func (j *simJob) seated() bool {
	return len(j.trainers) > 0 && j.steps > 0 && !slices.ContainsFunc(j.trainers,
		func(t *simTrainer) bool {
			seats := j.ranks.all[t.rank].node.rank.Sets[0].Find("").Seats()
			return t.epoch == 0 && t.parts == nil || t.over || seats[t.number] == nil
		})
}

// newcomer connects another process with the RANK of a trainer, or another spec.
func (j *simJob) newcomer() {
	r := j.some()
	if r == nil || !j.seated() {
		return
	}
	t := j.trainers[j.clock.rng.IntN(len(j.trainers))]
	r = j.ranks.all[t.rank]
	family := j.clock.rng.Uint64()
	if j.planted("F13 a newcomer takes the trainer's seat") {
		family = t.process
	}
	c := j.stranger(r, uint32(t.number), family)
	if c == nil {
		return
	}
	spec := t.spec()
	spec.Training = &protocol.Training{Life: family}
	switch j.clock.rng.IntN(4) {
	case 0:
		spec.Sampler = "sequential"
	case 1:
		spec.Seed++
	case 2:
		spec.Sampler = "uniform"
	}
	text, _ := json.Marshal(spec)
	c.say(door.AppendFrame(nil, door.KindOpen, 1, text))
	j.clock.after(j.clock.upTo(20*time.Millisecond), c.client, "", func() {
		epoch := uint32(t.epoch + j.clock.rng.IntN(3))
		p := u32s(0, epoch, 0)
		if j.clock.chance(2) {
			more := counts{stats.FallbackReads: 3, stats.FallbackBytes: 40}
			p = counted(epoch, more).Append(append(p, u32s(0)...))
			c.say(door.AppendFrame(nil, door.KindGet, 2, p))
			return
		}
		c.say(door.AppendFrame(nil, door.KindPlan, 2, p))
	})
}

// hostile sends anything to a rank, as the fuzz tests of the door do.
func (j *simJob) hostile() {
	r := j.some()
	if r == nil || !j.seated() {
		return
	}
	raw := make([]byte, 400)
	for i := range raw {
		raw[i] = byte(j.clock.rng.Uint32())
	}
	s := &script{raw}
	trainer := uint32(j.clock.rng.IntN(j.cfg.world()))
	c := j.stranger(r, trainer, 5)
	for n := 0; c != nil && n < 12; n++ {
		frame, _ := s.frame(trainer)
		j.clock.after(j.clock.upTo(100*time.Millisecond), c.client, "", func() { c.say(frame) })
	}
	// what a broken client of the training itself may send
	if t := j.trainers[trainer]; t.ready && j.clock.chance(2) {
		own := j.stranger(j.ranks.all[t.rank], trainer, t.process)
		if own == nil {
			return
		}
		text, _ := json.Marshal(t.spec())
		own.say(door.AppendFrame(nil, door.KindOpen, 1, text))
		p := u32s(0, uint32(t.epoch), math.MaxUint32, 0)
		own.say(door.AppendFrame(nil, door.KindReport, 2, p))
	}
}

// allowed reports whether training may end with this error, after what has happened.
func (j *simJob) allowed(why string) bool {
	for id := range j.bad {
		if why == sampleError(uint32(id)) {
			return true
		}
	}
	return j.cfg.ends != "" && strings.Contains(why, j.cfg.ends)
}

// Planted faults

// simFlaws are faults that can be planted in the product, each with a seed that shows it. Those
// with a number were once in the product.
var simFlaws = []struct {
	name string
	seed uint64
}{
	{"F1 a restarted rank rescans the data", 2},
	{"F2 a node has different files", 0},
	{"F3 a report with NaN is not resent", 19},
	{"F4 clients do not announce their plans", 2},
	{"F5 training needs no state file", 6},
	{"F8 a report is not checked", 105},
	{"F9 waits have no time limit", 42},
	{"F13 a newcomer takes the trainer's seat", 20},
	{"F16 any client's tally counts", 18},
	{"a plan is sent before its state is saved", 33},
	{"a checkpoint is made before its state is saved", 770},
	{"a checkpoint's state is overwritten", 6},
	{"reports are not resent", 2},
	{"reports are resent newest first", 2},
	{"only this epoch's reports are resent", 6},
	{"a lease ends early", 0},
	{"recovered memory is not verified", 0},
	{"memory in use is returned", 26},
	{"a message is lost", 8},
	{"a message overtakes another", 25},
	{"a byte flips between nodes", 0},
	{"the cache is not restarted", 0},
	{"a stopped rank is not killed", 42},
}

// planted reports whether a fault is planted.
func (j *simJob) planted(name string) bool { return j.plant == name }

// plants is planted, but true only once in oneIn times.
func (j *simJob) plants(name string, oneIn int) bool {
	return j.plant == name && j.clock.chance(oneIn)
}

// flaw plants faults between a rank's coordinator and its commands.
func (r *simRank) flaw() {
	s := r.node.rank.Sets[0].Find("")
	s.Wrap(func(c protocol.Command, obey training.Obey) { r.obeyWithFlaws(s, c, obey) })
}

// obeyWithFlaws executes a command of the coordinator.
func (r *simRank) obeyWithFlaws(
	s *training.Training, c protocol.Command, obey training.Obey,
) {
	obey(c)
	if w, ok := c.(protocol.SaveState); ok && r.number > 0 &&
		r.job.planted("a checkpoint is made before its state is saved") {
		s.Coordinate(protocol.Saved{State: w.Snap.Digest()})
	}
	k, ok := c.(protocol.KeepState)
	switch {
	case ok && r.job.planted("a plan is sent before its state is saved"):
		s.Coordinate(protocol.StateKept{Epoch: k.Snap.Epoch, Generation: k.Generation})
	case ok && r.job.planted("a checkpoint's state is overwritten") && r.number == 0:
		obey(protocol.SaveState{Snap: k.Snap})
	}
}

// unchecked handles a frame as a door without its checks would, and reports whether it has.
func (j *simJob) unchecked(c *simConn, f door.Frame) bool {
	stranger := strings.HasPrefix(c.client.name, "stranger")
	switch {
	case j.plant == "F8 a report is not checked" && stranger && f.Kind == door.KindReport:
		r, err := door.ParseReport(f.Payload)
		if err != nil || r.Batch != math.MaxUint32 {
			return false
		}
		for _, other := range c.rank.transport.ranks.all { // read as FINISH
			if other != c.rank && !other.dead {
				j.clock.after(0, other.simProcess, "", func() {
					other.node.rank.Sets[0].Find("").Coordinate(protocol.Moved{
						Rank: c.rank.number, Trainer: int(c.conn.Trainer), Epoch: int(r.Epoch) + 1,
					})
				})
			}
		}
		return true
	case j.plant == "F16 any client's tally counts" && f.Kind == door.KindGet && stranger:
		g, err := door.ParseGet(f.Payload, nil)
		if err == nil {
			from := training.Teller{Trainer: c.conn.Trainer, Worker: 99}
			c.rank.node.rank.Sets[0].Find("").Tally(from, g.Tally, true)
			return true
		}
	}
	return false
}
