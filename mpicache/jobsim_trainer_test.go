package mpicache

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/fields"
	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// simTrainer is a model of a training process: it speaks the door's protocol, and does what the
// Python client does when the cache is away, hangs or comes back.
type simTrainer struct {
	*simProcess
	job          *simJob
	number, rank int
	process      uint64

	conn    *simConn // nil: the cache is away
	ready   bool     // the rank was told what it may have forgotten
	retryAt time.Duration
	retry   time.Duration
	late    bool // a batch did not come in time, and none has since
	ticket  uint32
	replies map[uint32]simReply

	training protocol.Training
	told     []toldReport
	tally    tally
	ended    []tally

	epoch, from int
	ahead       simListed
	parts       [][]uint32 // of the epoch; nil: the plan is not there yet
	asks        bool       // it has asked for the plan, or a save
	batch       int        // that is trained, or waited for
	got         map[int]*simBatch
	due         []uint32 // leases that have ended
	waitsSince  time.Duration
	steps       bool // it has its part of the batch, and waits for the others
	trains      bool // it trains on the batch
	saves       bool
	over        bool
}

type simReply struct {
	kind door.Kind
	f    func(f door.Frame, ok bool) // ok: it came
}

// simBatch is a batch that was requested.
type simBatch struct {
	conn    *simConn // on which it arrived; nil: it was read from storage
	lease   uint32
	offsets []uint64
	sources []byte
	here    bool
	reading bool
}

const (
	simBatchTimeout = 1500 * time.Millisecond
	simRetry        = 100 * time.Millisecond
	simMaxRetry     = 2 * time.Second
	simHelloTimeout = time.Second
	simAhead        = 3 // batches that are requested before they are trained
)

// connect reports whether the cache is there, and tries to reach it if it is time.
func (t *simTrainer) connect() bool {
	if t.ready || t.conn != nil || t.job.clock.now < t.retryAt || t.job.ranks == nil {
		return t.ready
	}
	t.retryAt = t.job.clock.now + t.retry
	c := t.job.ranks.all[t.rank].dial(t.simProcess)
	if c == nil {
		return false
	}
	t.conn, t.replies = c, map[uint32]simReply{}
	c.reply = t.onReply
	c.lost = func() { t.onLost(c) }
	t.replies[0] = simReply{door.KindHello, func(f door.Frame, ok bool) {
		if ok {
			t.onHello(f)
		}
	}}
	c.say(door.AppendHello(nil, 0, hello(
		uint32(t.number), uint32(t.job.cfg.world()), uint64(t.number), t.process, t.process)))
	t.job.clock.after(simHelloTimeout, t.simProcess, "", func() {
		if t.conn == c && !t.ready {
			t.drop()
			t.retryAt = t.job.clock.now + t.retry
			t.retry = min(2*t.retry, simMaxRetry)
		}
	})
	return false
}

func (t *simTrainer) drop() {
	if c := t.conn; c != nil {
		c.hangUp()
		t.onLost(c)
	}
}

// onLost handles the connection's end.
func (t *simTrainer) onLost(c *simConn) {
	if t.conn != c {
		return
	}
	replies := t.replies
	t.conn, t.ready, t.replies, t.due = nil, false, nil, nil
	for _, ticket := range slices.Sorted(maps.Keys(replies)) {
		replies[ticket].f(door.Frame{}, false)
	}
	t.advance()
}

func (t *simTrainer) call(kind door.Kind, payload []byte, f func(f door.Frame, ok bool)) {
	t.ticket++
	t.replies[t.ticket] = simReply{kind, f}
	t.send(kind, payload)
}

func (t *simTrainer) send(kind door.Kind, payload []byte) {
	t.conn.say(door.AppendFrame(nil, kind, t.ticket, payload))
}

func (t *simTrainer) onReply(f door.Frame) {
	t.job.clock.trace.note(t.name, "reply", int(f.Kind), int(f.Ticket), len(f.Payload))
	r, ok := t.replies[f.Ticket]
	if f.Kind == door.KindError && (!ok || f.Ticket == 0) {
		t.job.violate("%s is refused: %s", t.name, f.Payload[4:])
		return
	}
	if !ok || f.Kind != door.KindError && f.Kind != r.kind.Reply() {
		t.job.violate("%s got a reply of kind %d that it did not ask for", t.name, f.Kind)
		return
	}
	delete(t.replies, f.Ticket)
	r.f(f, true)
	t.advance()
}

// simRefusal returns the code and the sentence of an error reply; code 0: it is none.
func simRefusal(f door.Frame) (code int, sentence string) {
	if f.Kind != door.KindError {
		return 0, ""
	}
	return int(le.Uint16(f.Payload)), string(f.Payload[4:])
}

// onHello compares the data set, and then tells the rank what it may have forgotten.
func (t *simTrainer) onHello(f door.Frame) {
	var welcome struct{ Data []struct{ Identity string } }
	if err := json.Unmarshal(f.Payload[20:], &welcome); err != nil {
		t.job.violate("%s: HELLO's reply: %v", t.name, err)
		return
	}
	if is := welcome.Data[0].Identity; is != simIdentity {
		t.fail(fmt.Sprintf("the data set is another one: %s", is))
		return
	}
	text, _ := json.Marshal(t.spec())
	t.call(door.KindOpen, text, func(f door.Frame, ok bool) {
		code, sentence := simRefusal(f)
		switch {
		case !ok:
		case code == door.CodeNotReady:
			t.drop()
		case code != 0:
			t.fail(sentence)
		default:
			t.resume()
		}
	})
}

func (t *simTrainer) spec() protocol.Spec {
	training := t.training
	if t.job.planted("F4 clients do not announce their plans") {
		training.Planned = nil
	}
	spec := protocol.Spec{
		Data: "train", Identity: simIdentity, Sampler: t.job.cfg.sampler, Seed: 1,
		BatchSize: t.job.cfg.batch(), Trainer: t.number, World: t.job.cfg.world(),
		Training: &training,
	}
	if t.job.cfg.listed() {
		spec.Seed, spec.BatchSize = 0, 0
	}
	return spec
}

func (t *simTrainer) resume() {
	told := t.told
	switch {
	case t.job.planted("reports are not resent"):
		told = nil
	case t.job.planted("reports are resent newest first"):
		told = slices.Clone(told)
		slices.Reverse(told)
	case t.job.planted("F3 a report with NaN is not resent") && len(told) > 0:
		if last := told[len(told)-1]; hasNaN(last.payload) {
			told = told[:len(told)-1]
		}
	case t.job.planted("only this epoch's reports are resent"):
		told = slices.DeleteFunc(slices.Clone(told),
			func(r toldReport) bool { return r.epoch < t.epoch })
	}
	for _, r := range told {
		t.send(door.KindReport, r.payload)
	}
	if t.job.cfg.listed() {
		t.handInAgain()
	}
	for _, tally := range append(slices.Clone(t.ended), t.tally) {
		t.send(door.KindRelease, tally.Append(u32s(0)))
	}
	t.ready = true
	if !t.late {
		t.retry = simRetry
	}
}

func hasNaN(report []byte) bool {
	for p := report[16:]; len(p) > 0; p = p[4:] {
		if v := math.Float32frombits(le.Uint32(p)); v != v {
			return true
		}
	}
	return false
}

// begin begins an epoch at a batch.
func (t *simTrainer) begin(epoch, from int) {
	t.epoch, t.from, t.batch = epoch, from, from
	t.parts, t.got, t.steps, t.asks = nil, map[int]*simBatch{}, false, false
	t.told = slices.DeleteFunc(t.told, func(r toldReport) bool { return r.epoch < epoch-2 })
	t.tally = tally{Epoch: uint32(epoch)}
	t.advance()
}

// advance does what can be done now.
func (t *simTrainer) advance() {
	switch {
	case t.over || t.dead || t.job.over:
	case t.epoch == t.job.cfg.epochs:
		t.leave()
	case t.parts == nil:
		t.plan()
	default:
		for b := t.batch; b < min(len(t.parts), t.batch+1+simAhead); b++ {
			if t.got[b] == nil {
				t.ask(b)
			}
		}
		t.look()
	}
}

// plan requests the epoch's plan.
func (t *simTrainer) plan() {
	if t.asks || !t.connect() {
		return
	}
	t.asks = true
	if t.job.cfg.listed() {
		t.handIn()
	}
	epoch := t.epoch
	t.call(door.KindPlan, u32s(0, uint32(epoch), uint32(t.from)), func(f door.Frame, ok bool) {
		t.asks = false
		code, sentence := simRefusal(f)
		switch {
		case !ok || t.over:
		case code == door.CodeNotReady:
			t.asks = true // in a moment
			t.job.clock.after(simRetry, t.simProcess, "", func() { t.asks = false; t.advance() })
		case code != 0:
			t.fail(sentence)
		default:
			t.onPlan(f.Payload)
		}
	})
}

func (t *simTrainer) onPlan(p []byte) {
	c := fields.Reader{Rest: p}
	epoch, batches := int(c.U32()), c.U32()
	c.U32()
	flags := c.U32()
	draws := uint32(0)
	counts := fields.U32s[uint32](&c, nil, batches)
	for _, n := range counts {
		t.parts = append(t.parts, fields.U32s[uint32](&c, nil, n))
		draws += n
	}
	for _, column := range []uint32{door.PlanWeights, door.PlanRepeats} {
		if flags&column != 0 {
			c.List(draws)
		}
	}
	if c.Short || epoch != t.epoch || batches == 0 {
		t.job.violate("%s: a plan of epoch %d with %d batches", t.name, epoch, batches)
		return
	}
	if flags&door.PlanSource != 0 {
		source := protocol.Digest(hex.EncodeToString(c.Bytes(16)))
		t.note(epoch, source)
	}
	t.waitsSince = t.job.clock.now
	if t.job.cfg.listed() && t.ready {
		t.handInAhead()
	}
}

// note keeps the digest of what a plan was made from, for two epochs.
func (t *simTrainer) note(epoch int, source protocol.Digest) {
	planned := slices.DeleteFunc(slices.Clone(t.training.Planned),
		func(p protocol.PlanSource) bool { return p.Epoch == epoch })
	planned = append(planned, protocol.PlanSource{Epoch: epoch, Scores: source})
	t.training.Planned = planned[max(0, len(planned)-2):]
}

// ask requests a batch, or reads it from storage.
func (t *simTrainer) ask(b int) {
	batch := &simBatch{}
	t.got[b] = batch
	if !t.connect() {
		t.readStorage(b, batch)
		return
	}
	p := u32s(0, uint32(t.epoch), uint32(b), uint32(len(t.due)))
	p = t.tally.Append(append(p, u32s(t.due...)...))
	t.due = nil
	epoch, conn := t.epoch, t.conn
	t.call(door.KindGet, p, func(f door.Frame, ok bool) {
		if t.epoch != epoch || t.got[b] != batch {
			if code, _ := simRefusal(f); ok && code == 0 { // it arrived too late
				c := fields.Reader{Rest: f.Payload}
				t.due = append(t.due, c.U32())
			}
			return
		}
		code, sentence := simRefusal(f)
		switch {
		case !ok || code == door.CodeNotReady:
			t.readStorage(b, batch)
		case code != 0:
			t.fail(sentence)
		default:
			t.onBatch(b, batch, conn, f.Payload)
		}
	})
}

func (t *simTrainer) onBatch(b int, batch *simBatch, conn *simConn, p []byte) {
	t.late, t.retry = false, simRetry
	c := fields.Reader{Rest: p}
	batch.conn, batch.lease = conn, c.U32()
	n := c.U32()
	ids := fields.U32s[uint32](&c, nil, n)
	c.List(n)
	for range n {
		batch.offsets = append(batch.offsets, c.U64())
	}
	c.List(2 * n)
	batch.sources = append([]byte(nil), c.Bytes(int(n))...)
	failed := c.U32()
	if want := t.rows(b); !slices.Equal(ids, want) {
		t.job.violate("%s: epoch %d, batch %d: got %v, the plan has %v", t.name, t.epoch, b, ids, want)
		return
	}
	if failed > 0 {
		at := c.U32()
		t.fail(sampleError(ids[at]))
		return
	}
	if t.job.planted("a lease ends early") {
		of, lease := conn.conn.Leased(batch.lease)
		of.Release(lease)
	}
	if !t.check(b, batch) {
		return
	}
	if slices.Contains(batch.sources, byte(stager.NotHere)) {
		t.readStorage(b, batch)
		return
	}
	batch.here = true
}

// rows returns what the cache serves for a batch.
func (t *simTrainer) rows(b int) []uint32 { return t.job.cfg.rows(t.parts[b]) }

func sampleError(id uint32) string { return fmt.Sprintf("sample %d cannot be read", id) }

// check compares the bytes in the cache's memory, while the lease holds.
func (t *simTrainer) check(b int, batch *simBatch) bool {
	if batch.conn == nil || batch.conn.over || batch.conn.rank.dead {
		return true
	}
	for i, id := range t.rows(b) {
		if batch.sources[i] >= byte(stager.NotHere) {
			continue
		}
		got := batch.conn.rank.node.slab.Bytes(int64(batch.offsets[i]),
			sampleSize(draw.SampleID(id)))
		if why := wrong(got, id); why != "" {
			t.job.violate("%s: epoch %d, batch %d: %s (source %d)", t.name, t.epoch, b, why,
				batch.sources[i])
			return false
		}
	}
	return true
}

// readStorage reads the samples of a batch that the cache did not serve.
func (t *simTrainer) readStorage(b int, batch *simBatch) {
	if batch.reading {
		return
	}
	batch.reading = true
	epoch := t.epoch
	t.job.clock.after(t.job.readTime(), t.simProcess, "reads storage", func() {
		if t.epoch != epoch || t.got[b] != batch {
			return
		}
		for i, id := range t.rows(b) {
			if batch.conn != nil && batch.sources[i] != byte(stager.NotHere) {
				continue
			}
			into := make([]byte, sampleSize(draw.SampleID(id)))
			if err := t.job.read(t.rank, draw.SampleID(id), into); err != nil {
				t.fail(sampleError(id))
				return
			}
			if why := wrong(into, id); why != "" {
				t.job.violate("%s: epoch %d, batch %d: %s, from storage", t.name, epoch, b, why)
				return
			}
		}
		batch.here, batch.reading = true, false
		t.advance()
	})
}

// look continues with the batch that is due, if it is here.
func (t *simTrainer) look() {
	if t.steps || t.trains || t.saves {
		return
	}
	batch := t.got[t.batch]
	if batch.here && batch.conn != nil && batch.conn.over { // its bytes may have been overwritten
		batch.here, batch.conn = false, nil
		t.readStorage(t.batch, batch)
	}
	if batch.here {
		t.steps = true
		t.job.arrived()
	}
}

// tick gives up a cache that does not answer.
func (t *simTrainer) tick() {
	if t.over || t.dead || t.job.over || t.job.planted("F9 waits have no time limit") {
		return
	}
	now := t.job.clock.now
	hung := t.conn != nil && t.conn.rank.stopped
	switch {
	case t.parts == nil:
		// it waits as long as it takes for a rank that greets
		if hung && t.ready && now-t.waitsSince > simBatchTimeout {
			t.waitsSince = now
			t.drop()
		}
	case t.saves || t.steps || t.trains:
	case t.ready && t.got[t.batch] != nil && !t.got[t.batch].here && !t.got[t.batch].reading &&
		now-t.waitsSince > simBatchTimeout:
		t.late = true
		t.retryAt = now + t.retry
		t.retry = min(2*t.retry, simMaxRetry)
		t.drop()
	}
	t.connect()
	t.advance()
}

// trained reports the batch, and continues.
func (t *simTrainer) trained() {
	batch, part := t.got[t.batch], t.parts[t.batch]
	if !t.check(t.batch, batch) {
		return
	}
	t.count(batch, t.rows(t.batch))
	if t.job.cfg.weighted() {
		p := u32s(0, uint32(t.epoch), uint32(t.batch), uint32(len(part)))
		for _, id := range part {
			p = le.AppendUint32(p, math.Float32bits(t.job.cfg.loss(t.epoch, t.batch, id)))
		}
		t.told = append(t.told, toldReport{t.epoch, p})
		if t.ready {
			t.send(door.KindReport, p)
		}
	}
	if batch.conn != nil && batch.conn == t.conn {
		t.due = append(t.due, batch.lease)
	}
	delete(t.got, t.batch)
	t.batch++
	t.steps, t.waitsSince = false, t.job.clock.now
	if t.batch == len(t.parts) {
		t.endEpoch()
	}
}

func (t *simTrainer) count(batch *simBatch, part []uint32) {
	for i, id := range part {
		size := sampleSize(draw.SampleID(id))
		source := stager.NotHere
		if batch.conn != nil {
			source = stager.Source(batch.sources[i])
		}
		counter := counterOf(source)
		t.tally.Counts[counter]++
		switch counter {
		case stats.StorageReads:
			t.tally.Counts[stats.StorageBytes] += size
		case stats.FallbackReads:
			t.tally.Counts[stats.FallbackBytes] += size
		}
	}
}

func (t *simTrainer) endEpoch() {
	t.ended = append(t.ended, t.tally)
	t.ended = t.ended[max(0, len(t.ended)-8):]
	if t.ready {
		t.send(door.KindRelease, t.tally.Append(u32s(append([]uint32{uint32(len(t.due))}, t.due...)...)))
		t.due = nil
	}
	epoch := t.epoch + 1
	if epoch == t.job.cfg.epochs {
		t.waitsSince = t.job.clock.now
	}
	t.begin(epoch, 0)
}

// leave ends the connection, once the cache knows what was counted; it waits for a cache that is
// away.
func (t *simTrainer) leave() {
	t.tally = tally{Epoch: uint32(t.epoch - 1)}
	if len(t.ended) > 0 {
		t.tally = t.ended[len(t.ended)-1]
	}
	if t.connect() || t.job.clock.now-t.waitsSince > 10*time.Second {
		if t.conn != nil && t.conn.rank.dead {
			t.job.uncounted = true // it was told too late that the rank has died
		}
		t.over = true
		t.drop()
		t.job.left()
	}
}

// save requests the state of a place for a checkpoint.
func (t *simTrainer) save(done func(door.Saved)) {
	if !t.ready {
		done(door.Saved{})
		return
	}
	t.saves = true
	once := false
	answer := func(a door.Saved) {
		if !once {
			once, t.saves = true, false
			t.waitsSince = t.job.clock.now
			done(a)
			if t.steps {
				t.job.arrived()
			}
			t.advance()
		}
	}
	t.job.clock.after(2*saveWait, t.simProcess, "", func() { answer(door.Saved{}) })
	t.call(door.KindSave, u32s(0, uint32(t.epoch), uint32(t.batch)), func(f door.Frame, ok bool) {
		var a door.Saved
		if code, sentence := simRefusal(f); ok && code == 0 {
			if err := json.Unmarshal(f.Payload, &a); err != nil {
				t.job.violate("%s: SAVE: %v", t.name, err)
			}
		} else if ok && code == door.CodeRequest {
			t.job.violate("%s: SAVE: %s", t.name, sentence)
		}
		answer(a)
	})
}

const saveWait = 20 * time.Second

func (t *simTrainer) fail(why string) {
	if !t.over && !t.dead {
		t.job.fail(t, why)
	}
}
