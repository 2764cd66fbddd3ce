package mpicache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/liveness"
	"rankpool/mpicache/slab"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
)

// simPID is the PID of all clients: that of a live process.
var simPID = int32(os.Getpid())

// The bounds of a simulated job: shorter than those of a real one, so that it takes fewer ticks.
const (
	simAnswerWithin = 3 * time.Second
	simPeerTimeout  = 300 * time.Millisecond
	simRankTimeout  = simAnswerWithin * 9 / 8
)

var simEpoch = time.Unix(1_700_000_000, 0)

// simMachine is a node of the job: what outlives its rank.
type simMachine struct {
	folder string
	memory int  // descriptor of the memory that the trainers have; -1: none
	spoils bool // the memory is written to while there is no rank
}

// simRanks are the ranks of a job from one start of the cache to its end.
type simRanks struct {
	job  *simJob
	size int
	all  []*simRank
	cut  map[[2]int]time.Duration // by link: until when
	// links from dead ranks: what was sent last never left
	broken map[simLink]bool
	over   bool
}

// simRank is a rank's process. Its Node is the code that runs in jobs, without its goroutines.
type simRank struct {
	*simProcess
	job       *simJob
	number    int
	node      *Node
	watch     *ranks.Watch
	transport *simTransport
	conns     []*simConn
	serves    bool
}

// Now, Beside and GiveWay implement outside for the rank's node.

func (r *simRank) Now() time.Time { return simEpoch.Add(r.job.clock.now) }

func (r *simRank) Beside(key any, what string, f func()) {
	d := r.job.clock.upTo(3 * time.Millisecond)
	if key != nil && r.job.clock.chance(8) { // a disk
		d += r.job.clock.upTo(80 * time.Millisecond)
	}
	r.job.clock.inOrder(key, d, r.simProcess, what, f)
}

func (r *simRank) GiveWay() {}

// Demand is ignored: reads end in any order.
func (r *simRank) Demand(uint64) {}

// Fetch reads storage for the rank.
func (r *simRank) Fetch(id draw.SampleID, into []byte, _ uint64, done func(error)) {
	r.job.clock.after(r.job.readTime(), r.simProcess, "", func() {
		if err := r.job.read(r.number, id, into); err != nil {
			done(err)
			return
		}
		done(nil)
	})
}

// newRanks starts ranks: each takes over what the one before has left.
func (j *simJob) newRanks() *simRanks {
	ranks := &simRanks{
		job: j, size: j.cfg.ranks, cut: map[[2]int]time.Duration{}, broken: map[simLink]bool{},
	}
	for n := range j.cfg.ranks {
		ranks.all = append(ranks.all, j.newRank(ranks, n))
	}
	for _, r := range ranks.all {
		r.transport.Start(r.onMessage)
		j.clock.after(j.clock.upTo(100*time.Millisecond), r.simProcess, "serves", func() {
			r.serves = true
			if !slices.ContainsFunc(ranks.all, func(r *simRank) bool { return !r.serves }) {
				j.clock.after(0, j.launcher, "", func() { j.drive(liveness.Ready{}) })
			}
		})
		j.every(20*time.Millisecond, r.simProcess, func() { r.node.doDue(r.Now()) })
		r.watch.While(r.node.refusePlans)
		j.every(liveness.Every(simRankTimeout), r.simProcess, func() {
			r.watch.Tick(j.clock.now)
		})
	}
	return ranks
}

// onMessage handles what arrives on the channels of a rank.
func (r *simRank) onMessage(from int, msg []byte) {
	if msg[0] == simSign {
		r.transport.hears(from, msg[1:])
		return
	}
	r.node.onMessage(from, msg)
}

// every calls do repeatedly while a process lives.
func (j *simJob) every(d time.Duration, p *simProcess, do func()) {
	j.clock.after(d, p, "", func() {
		do()
		j.every(d, p, do)
	})
}

func (j *simJob) newRank(ranks *simRanks, number int) *simRank {
	r := &simRank{
		simProcess: &simProcess{name: fmt.Sprint("rank ", number)}, job: j, number: number,
	}
	r.transport = &simTransport{
		ranks: ranks, number: number, pairs: map[simPair]*simTransfer{},
	}
	r.watch = watchOn(simSigns{r.transport}, simRankTimeout,
		func(lost int) { r.exit(fmt.Sprintf("misses rank %d", lost)) })
	machine := j.machines[number]
	cfg := Config{
		Transport: r.transport, Policy: "clairvoyant", PeerTimeout: simPeerTimeout,
		Watch: r.watch, Dir: machine.folder, SlabBytes: j.cfg.partition + simWindow,
		outside: r, Log: slog.New(&simLog{r: r}), Record: func(any) {},
		StatePath: j.statePath(), StateOptional: j.planted("F5 training needs no state file"),
		Data: []DataSet{{
			Name: "train", Samples: j.cfg.samples, Pieces: j.cfg.pieces(),
			Identity: j.identity, Times: "times", Size: sampleSize,
			Label:   func(id draw.SampleID) int { return int(id) % 3 },
			Storage: r, WindowBytes: simWindow,
			PartitionBytes: slices.Repeat([]int64{j.cfg.partition}, j.cfg.ranks),
			BookBytes:      j.cfg.bookBytes(),
		}},
	}
	cfg.Memory = j.takeBack(machine, &cfg)
	node, err := newNode(cfg)
	if err != nil {
		panic(fmt.Sprintf("rank %d: %v", number, err))
	}
	r.node = node
	if j.plant != "" {
		r.flaw()
	}
	j.opened = append(j.opened, node)
	if machine.memory >= 0 {
		_ = unix.Close(machine.memory)
	}
	if machine.memory, err = node.slab.ReadOnlyFD(); err != nil {
		panic(err)
	}
	if kept, of := node.Recovered(); of > 0 {
		j.clock.trace.note(r.name, "keeps residents", kept, of)
	}
	return r
}

// simWindow is how much memory a rank has for samples ahead of use.
const simWindow = 1 << 12

// takeBack takes the memory of the rank before back from the trainers, as TakeBack does.
func (j *simJob) takeBack(m *simMachine, cfg *Config) *slab.Slab {
	if m.memory < 0 {
		return nil
	}
	want, err := readSlabNote(m.folder)
	if err != nil || want.SizeBytes == 0 || j.cfg.cold {
		forgetSlab(m.folder)
		return nil
	}
	memory, err := slab.Take(m.memory, want, slabSets(cfg.Data))
	if err != nil {
		j.clock.trace.note("machine", "memory is not taken back: "+err.Error())
		forgetSlab(m.folder)
		return nil
	}
	return memory
}

// exit ends the rank by itself; MPI then ends all ranks.
func (r *simRank) exit(why string) {
	if r == nil || r.dead || r.transport.ranks.over {
		return
	}
	j := r.job
	j.clock.trace.note(r.name, "dies: "+why)
	r.kill()
	ranks := r.transport.ranks
	j.clock.after(j.clock.upTo(300*time.Millisecond), j.launcher, "sees that a rank has died",
		func() { ranks.end(why) })
}

// kill ends the process at once. Its clients see that.
func (r *simRank) kill() {
	if r.dead {
		return
	}
	r.dead, r.serves, r.held = true, false, nil
	for _, c := range r.conns {
		c.closed = true
		c.end()
	}
	r.close()
}

// close gives the memory back, except what the trainers have of it.
func (r *simRank) close() {
	_ = r.node.slab.Close()
}

// end ends all ranks that are left.
func (r *simRanks) end(how string) {
	if r.over {
		return
	}
	r.over = true
	for _, rank := range r.all {
		rank.kill()
	}
	for _, m := range r.job.machines {
		r.job.spoil(m)
	}
	if slices.ContainsFunc(r.job.trainers, func(t *simTrainer) bool { return t.over }) {
		r.job.uncounted = true // by trainers that have left, and will not come back
	}
	r.job.ranks = nil
	r.job.drive(liveness.Ended{How: how})
}

// lookAtDoor ends a rank that was asked to end.
func (r *simRank) lookAtDoor() {
	select {
	case <-r.node.stopped:
		r.exit("it was told to end")
	default:
	}
}

// simLog notes what a rank logs.
type simLog struct {
	slog.Handler
	r *simRank
}

func (l *simLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *simLog) Handle(_ context.Context, record slog.Record) error {
	text := strings.ToLower(record.Level.String()) + ": " + record.Message
	record.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.r.job.clock.trace.note(l.r.name, text)
	return nil
}

// Storage

var errGone = errors.New("it changed since the data set was indexed")

// readTime returns how long a read of storage takes.
func (j *simJob) readTime() time.Duration {
	d := j.clock.upTo(2 * time.Millisecond)
	if j.stall > j.clock.now {
		d += j.stall - j.clock.now
	}
	return d
}

// read reads a sample on a machine.
func (j *simJob) read(machine int, id draw.SampleID, into []byte) error {
	if j.bad[id] {
		return errGone
	}
	if j.shifted[machine] { // another sample has its number there
		id = (id + 1) % draw.SampleID(j.cfg.samples)
	}
	copy(into, sampleBytes(id))
	return nil
}

// spoil writes to the memory that a dead rank has left.
func (j *simJob) spoil(m *simMachine) {
	if !m.spoils || m.memory < 0 {
		return
	}
	m.spoils = false
	is, err := slab.IdentityOf(m.memory)
	if err != nil {
		panic(err)
	}
	sets := slabSets([]DataSet{{
		Name: "train", Samples: j.cfg.samples, Pieces: j.cfg.pieces(),
		Identity: j.identity, Times: "times",
	}})
	memory, err := slab.Take(m.memory, is, sets)
	if err != nil {
		return
	}
	whole, _, err := memory.Resume(memory.TakenBytes(), func(_, id int) int64 {
		return sampleSize(draw.SampleID(id))
	})
	for _, e := range whole {
		if err == nil && j.clock.chance(3) {
			b := memory.Bytes(e.Off, sampleSize(draw.SampleID(e.Sample)))
			b[0] ^= 0xff
			if j.planted("recovered memory is not verified") {
				memory.Entries(0).Put(e.Sample, e.Off, slab.Sum(b))
			}
		}
	}
	_ = memory.Close()
}

// Files

func (j *simJob) statePath() string {
	if !j.cfg.saves {
		return ""
	}
	return filepath.Join(j.dir, "importance")
}

// wrong says what is wrong with the bytes that a trainer got for a sample; "": nothing.
func wrong(got []byte, id uint32) string {
	if bytes.Equal(got, sampleBytes(draw.SampleID(id))) {
		return ""
	}
	return fmt.Sprintf("sample %d has other bytes", id)
}

// close drops what trainers have of a rank's memory.
func (m *simMachine) close() {
	if m.memory >= 0 {
		_ = unix.Close(m.memory)
		m.memory = -1
	}
}
