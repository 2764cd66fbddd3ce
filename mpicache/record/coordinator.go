package record

import (
	"encoding/json"
	"fmt"
	"strings"

	"rankpool/scheduler"
)

// Coordination is everything that the decisions of a data set's coordinator depend on, besides its
// events and the Setup of the training that it agrees on.
type Coordination struct {
	Config scheduler.CoordinatorConfig // without its functions
	// how many bytes each rank keeps, if plans may place samples; nil: they may not
	KeptBytes []int64
}

// CoordinatorTape is the part of a recording that is about the coordinator of a data set. It must
// not be used concurrently.
type CoordinatorTape struct {
	r      *Recorder
	stream int
	tick   *scheduler.Ticked // the last one, if it is not recorded
}

// CoordinatorTape begins the record of a coordinator; stream is the data set's number on this rank.
// r may be nil.
func (r *Recorder) CoordinatorTape(stream int, c *Coordination) *CoordinatorTape {
	if r == nil {
		return nil
	}
	r.add(&entry{Stream: stream, Coordinator: c})
	return &CoordinatorTape{r: r, stream: stream}
}

// Step passes the coordinator an event, passes the resulting commands to do, and records both. Of a
// series of Ticked without commands only the last is recorded. A nil tape records nothing.
func (t *CoordinatorTape) Step(
	c *scheduler.Coordinator, e scheduler.CoordinatorEvent, do func(scheduler.CoordinatorCommand),
) {
	if t == nil {
		c.Step(e, do)
		return
	}
	tick, ticked := e.(scheduler.Ticked)
	if !ticked {
		if t.tick != nil {
			t.r.add(&entry{Stream: t.stream, Told: *t.tick})
			t.tick = nil
		}
		t.r.add(&entry{Stream: t.stream, Told: portableTold(e)})
	}
	did := &did{}
	c.Step(e, func(c scheduler.CoordinatorCommand) {
		did.Commands = append(did.Commands, commandText(c))
		do(c)
	})
	if ticked {
		t.tick = &tick
		if len(did.Commands) == 0 {
			return
		}
		t.r.add(&entry{Stream: t.stream, Told: tick})
		t.tick = nil
	}
	t.r.add(&entry{Stream: t.stream, Did: did})
}

// did has the texts of the commands that an event caused.
type did struct{ Commands []string }

// planMade stands for scheduler.PlanMade: a replay makes the plan again.
type planMade struct {
	Epoch  int
	Digest uint64
}

// statesRead stands for scheduler.StatesRead.
type statesRead struct {
	Kept, Own             []stateFile
	File, Previous, Aside stateFile
}

// stateFile stands for scheduler.StateFile, with the snapshot encoded as in a file; nil: none.
type stateFile struct {
	Path string
	Snap []byte
	Err  error
}

// portableTold returns the form of a coordinator's event that gob can encode.
func portableTold(e scheduler.CoordinatorEvent) any {
	switch e := e.(type) {
	case scheduler.Begun:
		e.Err = textOnly(e.Err)
		return e
	case scheduler.PlanMade:
		return planMade{Epoch: e.Plan.Epoch, Digest: digest(e.Plan)}
	case scheduler.StatesRead:
		return statesRead{
			Kept: eachState(e.Kept, portableState), Own: eachState(e.Own, portableState),
			File: portableState(e.File), Previous: portableState(e.Previous),
			Aside: portableState(e.Aside),
		}
	case scheduler.Finished:
		return bareFinished
	}
	return e
}

func eachState[A, B any](states []A, f func(A) B) []B {
	var all []B
	for _, s := range states {
		all = append(all, f(s))
	}
	return all
}

func portableState(f scheduler.StateFile) stateFile {
	p := stateFile{Path: f.Path, Err: textOnly(f.Err)}
	if f.Snap != nil {
		p.Snap = f.Snap.Encode()
	}
	return p
}

// state is the inverse of portableState.
func (f stateFile) state() scheduler.StateFile {
	s := scheduler.StateFile{Path: f.Path, Err: f.Err}
	if f.Snap != nil {
		s.Snap, s.Err = scheduler.DecodeSnapshot(f.Snap)
	}
	return s
}

// commandText is the text of a coordinator's command, with digests in place of plans and states.
// The stager's tape records what a Drive passes to the stager.
func commandText(c scheduler.CoordinatorCommand) string {
	switch c := c.(type) {
	case scheduler.Tell:
		return "Tell " + fieldsText(c.Event)
	case scheduler.MakePlan:
		return fmt.Sprintf("MakePlan{Epoch:%d Processes:%d Layout:%s Sources:%s Cuts:%d}", c.Epoch,
			c.Processes, layoutText(c.Layout), c.Digest(), len(c.Cuts))
	case scheduler.Drive:
		switch e := c.Event.(type) {
		case scheduler.Planned:
			return fmt.Sprintf("Drive{Planned{Epoch:%d From:%d}}", e.Plan.Epoch, e.From)
		case scheduler.Scored:
			return fmt.Sprintf("Drive{Scored{Epoch:%d Batch:%d Draws:%d Total:%v}}", e.Epoch, e.Batch,
				len(e.IDs), e.Total)
		}
		return fmt.Sprintf("Drive{%T}", c.Event)
	case scheduler.Train:
		return fmt.Sprintf("Train{Epoch:%d}", c.Epoch)
	case scheduler.AnswerPlan:
		return fmt.Sprintf("AnswerPlan{Ticket:%d Trainer:%d Epoch:%d Scores:%s}", c.Ticket, c.Trainer,
			c.Plan.Epoch, c.Scores)
	case scheduler.PlanBeside:
		return fmt.Sprintf("PlanBeside{Ticket:%d Trainer:%d Epoch:%d Processes:%d Layout:%s}",
			c.Ticket, c.Trainer, c.Epoch, c.Processes, layoutText(c.Layout))
	case scheduler.KeepState:
		return fmt.Sprintf("KeepState{Generation:%d Epoch:%d State:%s}", c.Generation, c.Snap.Epoch,
			c.Snap.Digest())
	case scheduler.SaveState:
		return fmt.Sprintf("SaveState{ID:%d Epoch:%d State:%s Checkpoint:%t Previous:%t Anew:%t}", c.ID,
			c.Snap.Epoch, c.Snap.Digest(), c.Snap.Checkpoint, c.Previous, c.Anew)
	case scheduler.Log:
		return fmt.Sprintf("Log{Level:%d Rank:%d %q Err:%v}", c.Level, c.Rank, c.Text, c.Err)
	}
	return fieldsText(c)
}

func layoutText(l *scheduler.Layout) string {
	if l == nil {
		return "nil"
	}
	return fmt.Sprintf("%+v", *l)
}

// fieldsText returns the name of a struct's type and its fields, including those behind pointers.
// The struct must contain no NaN, which JSON cannot express.
func fieldsText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("record: " + err.Error()) // its types are ours
	}
	// gob does not distinguish an empty list from none
	fields := strings.ReplaceAll(string(text), ":[]", ":null")
	return strings.TrimPrefix(fmt.Sprintf("%T", v), "scheduler.") + fields
}
