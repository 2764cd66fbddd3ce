package training

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"rankpool/mpicache/files"
	"rankpool/mpicache/message"
	"rankpool/scheduler/protocol"
)

// kept is the saved description of a training for a restarted rank.
type kept struct {
	Set   int            `json:"set"`           // the data set's number
	Job   string         `json:"job,omitempty"` // the training's name
	Spec  *protocol.Spec `json:"spec"`          // nil: the data set was not trained on
	Ranks []int32        `json:"ranks"`         // each trainer's rank; nil if some were missing
	// number of ranks: if it changes at a restart, the ranks are renumbered
	Of    int           `json:"of"`
	Seats map[int]*Seat `json:"seats"`
}

// keptName is the file in a rank's folder that lists the trainers.
const keptName = "trainers"

// Keep writes the list of trainers for a restarted rank, if it has changed.
func (r *Rank) Keep() {
	if !r.seatsChanged.Swap(false) {
		return
	}
	var all []json.RawMessage
	for _, s := range r.All() {
		s.store.Locked(func() { all = append(all, s.kept()) })
	}
	if err := files.Write(filepath.Join(r.Dir, keptName), message.JSON(all)); err != nil {
		r.Log.Warn("who trains is not kept; a rank that dies now takes whom comes first",
			"error", err)
	}
}

// kept returns the training as JSON.
func (s *Training) kept() []byte {
	k := kept{
		Set: s.set.index, Job: s.job, Spec: s.coordinator.Spec(), Of: s.rank.Transport.Size(),
		Seats: s.seats,
	}
	if s.coordinator.Complete() {
		k.Ranks = s.coordinator.World()
	}
	return message.JSON(k)
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
	text, err := files.Read(filepath.Join(dir, keptName))
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

// Recall restores what an earlier life of this rank has saved, and what others know, by rank. It
// ignores a file that names an unknown data set.
func (r *Rank) Recall(others [][]Before) {
	all, err := readKept(r.Dir, r.Transport.Size())
	for _, k := range all {
		if err == nil && (k.Set < 0 || k.Set >= len(r.Sets)) {
			err = fmt.Errorf("it has data set number %d", k.Set)
		}
	}
	if err != nil {
		r.Log.Warn("who trains was not kept", "error", err)
		all = nil
	}
	before := map[*Training]*Before{}
	for _, k := range all {
		s := r.rejoin(before, k.Set, k.Job)
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
	for rank, known := range others {
		for _, b := range known {
			if rank == r.Transport.Rank() || b.Spec == nil {
				continue
			}
			if s := r.rejoin(before, b.Set, b.Job); s != nil {
				s.hearBefore(before[s], rank, b)
			}
		}
	}
	for _, s := range r.All() {
		if b := before[s]; b != nil && b.Spec != nil {
			s.Coordinate(protocol.Remembered{Spec: *b.Spec, Ranks: b.Ranks})
		}
	}
}

// rejoin returns the training that was served before, with an entry in before.
func (r *Rank) rejoin(before map[*Training]*Before, set int, job string) *Training {
	if set < 0 || set >= len(r.Sets) {
		return nil
	}
	s, err := r.Sets[set].Join(job)
	if err != nil {
		r.Log.Warn("a training is not served any more", "job", job, "error", err)
		return nil
	}
	if before[s] == nil {
		before[s] = &Before{}
	}
	return s
}

// hearBefore merges what another rank knows of the previous training.
func (s *Training) hearBefore(known *Before, rank int, b Before) {
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

// HeldByTrainers reports whether a training process may still send the memory of a rank in this
// folder: one that is alive and not stopped, or invisible from here.
func HeldByTrainers(dir string, ranks int) bool {
	all, _ := readKept(dir, ranks) // nobody, where it cannot be read
	return slices.ContainsFunc(all, func(k kept) bool {
		for _, st := range k.Seats {
			if st == nil {
				continue
			}
			ticks, stopped := statOf(st.PID)
			if st.PID == 0 || st.Started != 0 && ticks == st.Started && !stopped {
				return true
			}
		}
		return false
	})
}
