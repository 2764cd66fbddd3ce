package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"maps"
	"strings"

	"rankpool/scheduler"
)

// An entry is one item of a recording. One of its fields is set, with Sizes or Commands if these
// belong to it. Those other than Begin and End are about data set Stream.
type entry struct {
	Stream int
	Begin  *Begin
	End    *end
	// of the data set's coordinator: its beginning, what portableTold returns for an event, and the
	// commands that the event caused
	Coordinator *Coordination
	Told        any
	Did         *did
	Setup       *Setup
	Sizes       []int64   // with Setup: the memory of the samples in bytes, one for all or one each
	Base        []float32 // the scores that plans are made from, from here on
	// the basis of a system's choices for earlier epochs, if it has not made them here
	Cuts     []scheduler.Cut
	Learned  []byte // what the next Planned's plan was made from besides Base
	Event    any    // what portable returns for an event
	Commands []any  // with Event: what portable returns for the commands that it caused
}

// end is the end of a recording. Why is empty if the rank has ended.
type end struct{ Why string }

// planned stands for scheduler.Planned: what is needed to make the plan again, and a digest to
// compare the result with.
type planned struct {
	Epoch, From int
	Probe       scheduler.Probe
	Placed      bool
	// of each draw, if Placed: its owner and, unless Assign makes it, its consumer
	Home, Consumer []uint16
	Digest         uint64
	Processes      int               // scheduler.PlanConfig's
	Layout         *scheduler.Layout // the plan's, if it is not that of the ranks
}

// scored stands for scheduler.Scored: the scores that changed, or with Whole those of all samples.
type scored struct {
	Epoch, Batch int
	IDs          []scheduler.SampleID
	Total        float64
	Whole        bool
	Values       []float32 // of IDs, or of all samples
	Known        []byte    // as Values; 1: it was ever scored
}

// failure stands for an error, of which only the text matters.
type failure string

func (f failure) Error() string { return string(f) }

// bare stands for events and commands without fields, which gob does not encode.
type bare uint8

const (
	bareRoom bare = iota + 1
	bareEnded
	bareEndTier
	bareFinished
)

func init() {
	gob.RegisterName("planned", planned{})
	gob.RegisterName("scored", scored{})
	gob.RegisterName("failure", failure(""))
	gob.RegisterName("bare", bare(0))
	register( // the stager's events and commands
		scheduler.Requested{}, scheduler.Withdrawn{}, scheduler.Released{}, scheduler.Fetched{},
		scheduler.Starved{}, scheduler.Received{}, scheduler.PeerLost{}, scheduler.Asked{},
		scheduler.Sent{}, scheduler.Stored{}, scheduler.Recalled{}, scheduler.Shrunk{},
		scheduler.Recovered{}, scheduler.Checked{}, scheduler.Reread{}, scheduler.Weighed{},
		scheduler.Packed{}, scheduler.Unpacked{},
		scheduler.Fetch{}, scheduler.Read{}, scheduler.Timed{}, scheduler.Check{}, scheduler.Ask{},
		scheduler.Send{}, scheduler.Deliver{}, scheduler.Free{}, scheduler.Store{},
		scheduler.Recall{}, scheduler.Erase{}, scheduler.Pack{}, scheduler.Unpack{},
		scheduler.Discard{},
	)
	register( // the coordinator's events
		planMade{}, statesRead{}, scheduler.Remembered{}, scheduler.Vanished{}, scheduler.Opened{},
		scheduler.Replaced{}, scheduler.Begun{}, scheduler.PlanWanted{}, scheduler.BatchWanted{},
		scheduler.Trained{}, scheduler.SaveWanted{}, scheduler.Canceled{}, scheduler.Moved{},
		scheduler.Wished{}, scheduler.Restarted{}, scheduler.Saving{}, scheduler.Saved{},
		scheduler.Sourced{}, scheduler.Declined{}, scheduler.Left{}, scheduler.StateKept{},
		scheduler.StateSaved{}, scheduler.Hung{}, scheduler.Ticked{},
	)
}

// register makes gob know the values' types.
func register(values ...any) {
	for _, value := range values {
		gob.RegisterName(strings.TrimPrefix(fmt.Sprintf("%T", value), "scheduler."), value)
	}
}

// portable returns the form of an event or a command that gob can encode. whole selects all scores
// of a Scored, not only those that changed.
func portable(v any, whole bool) any {
	switch v := v.(type) {
	case scheduler.Planned:
		p := planned{
			Epoch: v.Plan.Epoch, From: v.From, Probe: v.Probe, Placed: v.Plan.Home != nil,
			Home: v.Plan.Home, Digest: digest(v.Plan), Processes: v.Plan.Processes,
		}
		if v.Plan.Moved() {
			p.Placed, p.Layout = true, v.Plan.Layout
		}
		if p.Placed && !v.Plan.Chosen() {
			p.Consumer = v.Plan.Consumer
		}
		return p
	case scheduler.Scored:
		return newScored(v, whole)
	case scheduler.Fetched:
		v.Err = textOnly(v.Err)
		return v
	case scheduler.Reread:
		v.Err = textOnly(v.Err)
		return v
	case scheduler.Stored:
		v.Err = textOnly(v.Err)
		return v
	case scheduler.Recalled:
		v.Err = textOnly(v.Err)
		return v
	case scheduler.Packed:
		v.Err = textOnly(v.Err)
		return v
	case scheduler.Unpacked:
		v.Err = textOnly(v.Err)
		return v
	case scheduler.Deliver:
		v.Errs = maps.Clone(v.Errs)
		for place, err := range v.Errs {
			v.Errs[place] = textOnly(err)
		}
		return v
	case scheduler.Room:
		return bareRoom
	case scheduler.Ended:
		return bareEnded
	case scheduler.EndTier:
		return bareEndTier
	}
	return v
}

func textOnly(err error) error {
	if err == nil {
		return nil
	}
	return failure(err.Error())
}

// unbare returns the event or command that a bare one stands for, and others unchanged.
func unbare(v any) any {
	switch v {
	case bareRoom:
		return scheduler.Room{}
	case bareEnded:
		return scheduler.Ended{}
	case bareEndTier:
		return scheduler.EndTier{}
	}
	return v
}

// digest distinguishes plans by their draws and consumers.
//
// Source: SHA-256, of which 64 bits suffice against accidents.
func digest(p *scheduler.Plan) uint64 {
	h := sha256.New()
	b := make([]byte, 0, 1<<12)
	for i, id := range p.IDs {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
		b = binary.LittleEndian.AppendUint16(b, p.Consumer[i])
		if len(b) > cap(b)-6 || i == len(p.IDs)-1 {
			h.Write(b) // a hash never returns an error
			b = b[:0]
		}
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

func newScored(e scheduler.Scored, whole bool) scored {
	n := len(e.IDs)
	if whole {
		n = len(e.Scores)
	}
	s := scored{
		Epoch: e.Epoch, Batch: e.Batch, IDs: e.IDs, Total: e.Total, Whole: whole,
		Values: make([]float32, 0, n), Known: make([]byte, 0, n),
	}
	for i := range n {
		id, known := scheduler.SampleID(i), byte(0)
		if !whole {
			id = e.IDs[i]
		}
		if e.Known(id) {
			known = 1
		}
		s.Values, s.Known = append(s.Values, e.Scores[id]), append(s.Known, known)
	}
	return s
}
