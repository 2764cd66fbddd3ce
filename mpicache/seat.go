package mpicache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"

	"rankpool/mpicache/door"
	"rankpool/scheduler/protocol"
)

// A trainer of this node is one process, with its loader's workers. A second process that claims to
// be the same trainer would receive the first one's batches and finish its epochs, so it is refused
// while the first one is alive. The successor of a dead trainer is accepted.
//
// The decision rests on what can be verified. A process has a random number, and a random family
// number that its children inherit, so no two processes share one by accident. The kernel
// identifies the process at the other end of the socket.

// A seat records which processes are a trainer. It is saved in the rank's folder, so it outlives
// the rank.
type seat struct {
	Family uint64 `json:"family"`
	// the family's one process that plans, reports and saves; 0: not connected yet
	Process uint64 `json:"process"`
	PID     int32  `json:"pid"`     // 0: unknown here, as in another PID namespace
	Started uint64 `json:"started"` // when PID began, in the kernel's ticks since boot
}

// checkSeat returns an error if the client's trainer is another live process.
func (s *stream) checkSeat(c *conn) error {
	st := s.seats[int(c.Trainer)]
	if st == nil || st.Family == c.Family || !c.node.lives(int(c.Trainer), st) {
		return nil
	}
	return door.Refuse("trainer %d is process %d on this node already, and process %d does not "+
		"belong to it; give every training process its own RANK",
		c.Trainer, st.PID, c.PID)
}

// sit gives the client the seat of its trainer, unless another process has it. A client that plans,
// reports or saves must be the one process of the family that does so.
func (s *stream) sit(c *conn, acts bool) error {
	if s.ended {
		return door.NotReady("the training has ended here")
	}
	t := int(c.Trainer)
	st := s.seats[t]
	if st != nil && st.Family == c.Family && (!acts || st.Process == c.Process) {
		return nil
	}
	if err := s.checkSeat(c); err != nil {
		return err
	}
	if st == nil || st.Family != c.Family {
		if st != nil { // the rest of its family, such as workers whose process was killed
			for _, other := range c.node.connsOf(t, st.Family) {
				other.HangUp()
			}
		}
		st = &seat{Family: c.Family}
		s.seats[t] = st
		s.coordinate(protocol.Replaced{Trainer: t})
	}
	if acts {
		if st.Process != 0 && c.node.lives(t, st) {
			return door.Refuse("process %d trains as trainer %d, and process %d has come from it: it "+
				"may read batches, and no more", st.PID, t, c.PID)
		}
		st.Process, st.PID = c.Process, c.PID
		st.Started, _ = statOf(c.PID)
		c.node.seatsChanged.Store(true)
	}
	return nil
}

// lives reports whether the process in a seat is alive: according to the kernel or, if its PID is
// unknown, because a connection of its family is open.
func (n *Node) lives(trainer int, st *seat) bool {
	if st.PID != 0 {
		return st.runs()
	}
	return len(n.connsOf(trainer, st.Family)) > 0
}

// connsOf returns the open connections of a trainer's family.
func (n *Node) connsOf(trainer int, family uint64) (conns []*conn) {
	n.connMu.Lock()
	defer n.connMu.Unlock()
	for c := range n.conns {
		if t, f := c.whose(); int(t) == trainer && f == family {
			conns = append(conns, c)
		}
	}
	return conns
}

// runs reports whether the process of a seat with a PID is running.
func (st *seat) runs() bool {
	began, _ := statOf(st.PID)
	return st.Started != 0 && began == st.Started
}

// statOf returns when a process began, 0 when it is gone, and whether it is stopped.
//
// Source: proc(5), /proc/[pid]/stat: state is field 3, starttime field 22; field 2, in brackets,
// may have anything in it.
func statOf(pid int32) (ticks uint64, stopped bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/stat")
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if err != nil || len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0, false
	}
	ticks, err = strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return 0, false
	}
	return ticks, fields[0][0] == 'T' || fields[0][0] == 't'
}

// kept is the saved description of a training for a restarted rank.
type kept struct {
	Set   int            `json:"set"`           // the data set's number
	Job   string         `json:"job,omitempty"` // the training's name
	Spec  *protocol.Spec `json:"spec"`          // nil: the data set was not trained on
	Ranks []int32        `json:"ranks"`         // each trainer's rank; nil if some were missing
	// number of ranks: if it changes at a restart, the ranks are renumbered
	Of    int           `json:"of"`
	Seats map[int]*seat `json:"seats"`
}

// keptName is the file in a rank's folder that lists the trainers.
const keptName = "trainers"

// keep writes the list of trainers for a restarted rank.
func (n *Node) keep() {
	if !n.seatsChanged.Swap(false) {
		return
	}
	var all []json.RawMessage
	for _, s := range n.all() {
		s.locked(func() { all = append(all, s.kept()) })
	}
	if err := writeFile(filepath.Join(n.cfg.Dir, keptName), inOne(asJSON(all))); err != nil {
		n.cfg.Log.Warn("who trains is not kept; a rank that dies now takes whom comes first",
			"error", err)
	}
}

// kept returns the stream as JSON.
func (s *stream) kept() []byte {
	k := kept{
		Set: s.index, Job: s.job, Spec: s.coordinator.Spec(), Of: s.node.cfg.Transport.Size(),
		Seats: s.seats,
	}
	if s.coordinator.Complete() {
		k.Ranks = s.coordinator.World()
	}
	return asJSON(k)
}

// Before describes the training that a restarted rank served before. Ranks exchange it before their
// doors open, since a rank may have no trainers.
type Before struct {
	Set  int            // the data set's number
	Job  string         // the training's name
	Spec *protocol.Spec // nil: nothing
	// each trainer's rank, sent only by the first ranks, since others know no more; nil if some
	// trainers were missing
	Ranks []int32
	Lives bool // one of the rank's own trainers is alive
}

const tellRanks = 8 // how many ranks send Before.Ranks: some may have lost it

// ReadBefore returns what an earlier life of a rank has left in its folder, one entry per training;
// nil for nothing.
func ReadBefore(dir string, rank, ranks int) []Before {
	all, _ := readKept(dir, ranks) // NewNode reads it too, and reports the error
	known := make([]Before, len(all))
	for i, k := range all {
		known[i].Set, known[i].Job, known[i].Spec = k.Set, k.Job, k.Spec
		if rank < tellRanks {
			known[i].Ranks = k.Ranks
		}
		for _, st := range k.Seats {
			known[i].Lives = known[i].Lives || st != nil && st.PID != 0 && st.runs()
		}
	}
	return known
}

// readKept reads the list of trainers in a rank's folder. It drops their ranks if the number of
// ranks has changed, since the ranks then have other numbers.
func readKept(dir string, ranks int) (all []kept, err error) {
	text, err := ReadFile(filepath.Join(dir, keptName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	for i := range all {
		if all[i].Of != ranks {
			all[i].Ranks = nil
		}
	}
	return all, err
}

// recall restores what an earlier life of this rank has saved, and what other ranks know. It
// ignores a file that names an unknown data set.
func (n *Node) recall() {
	all, err := readKept(n.cfg.Dir, n.cfg.Transport.Size())
	for _, k := range all {
		if err == nil && (k.Set < 0 || k.Set >= len(n.streams)) {
			err = fmt.Errorf("it has data set number %d", k.Set)
		}
	}
	if err != nil {
		n.cfg.Log.Warn("who trains was not kept", "error", err)
		all = nil
	}
	before := map[*stream]*Before{}
	for _, k := range all {
		s := n.rejoin(before, k.Set, k.Job)
		if s == nil {
			continue
		}
		*before[s] = Before{Spec: k.Spec, Ranks: k.Ranks}
		for t, st := range k.Seats {
			if st != nil {
				s.seats[t] = st
			}
		}
		s.livedHere = s.livesHere()
	}
	for rank, known := range n.cfg.Before {
		for _, b := range known {
			if rank == n.cfg.Transport.Rank() || b.Spec == nil {
				continue
			}
			if s := n.rejoin(before, b.Set, b.Job); s != nil {
				s.hearBefore(before[s], rank, b)
			}
		}
	}
	for _, s := range n.all() {
		if b := before[s]; b != nil && b.Spec != nil {
			s.coordinate(protocol.Remembered{Spec: *b.Spec, Ranks: b.Ranks})
		}
	}
}

// rejoin returns the stream of a training that was served before, with an entry in before.
func (n *Node) rejoin(before map[*stream]*Before, set int, job string) *stream {
	if set < 0 || set >= len(n.streams) {
		return nil
	}
	s, err := n.streams[set].join(job)
	if err != nil {
		n.cfg.Log.Warn("a training is not served any more", "job", job, "error", err)
		return nil
	}
	if before[s] == nil {
		before[s] = &Before{}
	}
	return s
}

// hearBefore merges what another rank knows of the previous training.
func (s *stream) hearBefore(known *Before, rank int, b Before) {
	if b.Lives {
		s.livesAt[rank] = true
	}
	if known.Spec == nil || b.Lives && !s.livedHere {
		known.Spec = b.Spec
	}
	if known.Ranks == nil && reflect.DeepEqual(known.Spec, b.Spec) {
		known.Ranks = b.Ranks
	}
}

// livesHere reports whether a trainer with a seat on this rank is alive.
func (s *stream) livesHere() bool {
	for t, st := range s.seats {
		if s.node.lives(t, st) {
			return true
		}
	}
	return false
}

// forgetBefore drops the previous training when none of its trainers is alive, and tells the other
// ranks when the last one here has ended.
func (s *stream) forgetBefore() {
	if !s.coordinator.Remembers() || s.coordinator.Complete() || s.livesHere() {
		return
	}
	if s.livedHere {
		s.livedHere = false
		s.node.toPeers(s.message(messageOver))
	}
	if len(s.livesAt) == 0 {
		s.coordinate(protocol.Vanished{})
	}
}

// onOver handles the message that no trainer of the previous training is alive on a rank.
func (s *stream) onOver(from int) {
	s.locked(func() {
		delete(s.livesAt, from)
		s.forgetBefore()
	})
}
