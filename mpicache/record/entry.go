package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"

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
	for name, value := range map[string]any{
		"planned": planned{}, "scored": scored{}, "failure": failure(""), "bare": bare(0),
		"Requested": scheduler.Requested{}, "Withdrawn": scheduler.Withdrawn{},
		"Released": scheduler.Released{},
		"Fetched":  scheduler.Fetched{}, "Starved": scheduler.Starved{},
		"Received": scheduler.Received{},
		"PeerLost": scheduler.PeerLost{}, "Asked": scheduler.Asked{}, "Sent": scheduler.Sent{},
		"Stored":   scheduler.Stored{},
		"Recalled": scheduler.Recalled{},
		"Shrunk":   scheduler.Shrunk{}, "Recovered": scheduler.Recovered{},
		"Checked": scheduler.Checked{}, "Check": scheduler.Check{},
		"Reread": scheduler.Reread{}, "Read": scheduler.Read{}, "Timed": scheduler.Timed{},
		"Weighed": scheduler.Weighed{},
		"Fetch":   scheduler.Fetch{}, "Ask": scheduler.Ask{}, "Send": scheduler.Send{},
		"Deliver": scheduler.Deliver{},
		"Free":    scheduler.Free{}, "Store": scheduler.Store{}, "Recall": scheduler.Recall{},
		"Erase": scheduler.Erase{}, "Pack": scheduler.Pack{}, "Unpack": scheduler.Unpack{},
		"Discard": scheduler.Discard{}, "Packed": scheduler.Packed{},
		"Unpacked": scheduler.Unpacked{},
	} {
		gob.RegisterName(name, value)
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
		errs := v.Errs
		v.Errs = nil
		for place, err := range errs {
			if v.Errs == nil {
				v.Errs = map[int]error{}
			}
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
	add := func(id scheduler.SampleID) {
		known := byte(0)
		if e.Known(id) {
			known = 1
		}
		s.Values, s.Known = append(s.Values, e.Scores[id]), append(s.Known, known)
	}
	if !whole {
		for _, id := range e.IDs {
			add(id)
		}
		return s
	}
	for id := range e.Scores {
		add(scheduler.SampleID(id))
	}
	return s
}
