package training

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"rankpool/mpicache/door"
	"rankpool/mpicache/files"
	"rankpool/mpicache/message"
	"rankpool/scheduler/protocol"
)

// A trainer of this node is one process, with its loader's workers. A second process that claims to
// be the same trainer would receive the first one's batches and finish its epochs, so it is refused
// while the first one is alive. The successor of a dead trainer is accepted.
//
// The decision rests on what can be verified. A process has a random number, and a random family
// number that its children inherit, so no two processes share one by accident. The kernel
// identifies the process at the other end of the socket.

// A Seat records which processes are a trainer.
type Seat struct {
	Family uint64 `json:"family"`
	// the family's one process that plans, reports and saves; 0: not connected yet
	Process uint64 `json:"process"`
	PID     int32  `json:"pid"`     // 0: unknown here, as in another PID namespace
	Started uint64 `json:"started"` // when PID began, in the kernel's ticks since boot
}

// checkSeat returns an error if the client's trainer is another live process.
func (s *Training) checkSeat(c Client) error {
	st := s.seats[int(c.ID().Trainer)]
	if st == nil || st.Family == c.ID().Family || !s.rank.lives(int(c.ID().Trainer), st) {
		return nil
	}
	return door.Refuse("trainer %d is process %d on this node already, and process %d does not "+
		"belong to it; give every training process its own RANK",
		c.ID().Trainer, st.PID, c.PID())
}

// sit gives the client the seat of its trainer, unless another process has it. A client that plans,
// reports or saves must be the one process of the family that does so.
func (s *Training) sit(c Client, acts bool) error {
	if s.ended {
		return door.NotReady("the training has ended here")
	}
	t := int(c.ID().Trainer)
	st := s.seats[t]
	if st != nil && st.Family == c.ID().Family && (!acts || st.Process == c.ID().Process) {
		return nil
	}
	if err := s.checkSeat(c); err != nil {
		return err
	}
	if st == nil || st.Family != c.ID().Family {
		if st != nil { // the rest of its family, such as workers whose process was killed
			for _, other := range s.rank.ConnsOf(t, st.Family) {
				other.HangUp()
			}
		}
		st = &Seat{Family: c.ID().Family}
		s.seats[t] = st
		s.Coordinate(protocol.Replaced{Trainer: t})
	}
	if acts {
		if st.Process != 0 && s.rank.lives(t, st) {
			return door.Refuse("process %d trains as trainer %d, and process %d has come from it: it "+
				"may read batches, and no more", st.PID, t, c.PID())
		}
		st.Process, st.PID = c.ID().Process, c.PID()
		st.Started, _ = statOf(c.PID())
		s.rank.seatsChanged.Store(true)
	}
	return nil
}

// lives reports whether the process in a seat is alive: according to the kernel or, if its PID is
// unknown, because a connection of its family is open.
func (r *Rank) lives(trainer int, st *Seat) bool {
	if st.PID != 0 {
		return st.runs()
	}
	return len(r.ConnsOf(trainer, st.Family)) > 0
}

// runs reports whether the process of a seat with a PID is running.
func (st *Seat) runs() bool {
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

// livesHere reports whether a trainer with a seat on this rank is alive.
func (s *Training) livesHere() bool {
	for t, st := range s.seats {
		if s.rank.lives(t, st) {
			return true
		}
	}
	return false
}

// trainersName is the file in a rank's folder that lists the trainers of its node: a restarted rank
// asks them for its memory.
const trainersName = "trainers"

// Keep writes the list of trainers for a restarted rank, if it has changed.
func (r *Rank) Keep() {
	if !r.seatsChanged.Swap(false) {
		return
	}
	var all []Seat
	for _, s := range r.All() {
		s.store.Locked(func() {
			for _, st := range s.seats {
				all = append(all, *st)
			}
		})
	}
	if err := files.Write(filepath.Join(r.Dir, trainersName), message.JSON(all)); err != nil {
		r.Log.Warn("who trains is not kept; a rank that dies now starts with empty memory",
			"error", err)
	}
}

// HeldByTrainers reports whether a training process may still send the memory of a rank in this
// folder: one that is alive and not stopped, or invisible from here.
func HeldByTrainers(dir string) bool {
	var all []Seat
	text, err := files.Read(filepath.Join(dir, trainersName))
	if err != nil || json.Unmarshal(text, &all) != nil {
		return false
	}
	return slices.ContainsFunc(all, func(st Seat) bool {
		ticks, stopped := statOf(st.PID)
		return st.PID == 0 || st.Started != 0 && ticks == st.Started && !stopped
	})
}
