package stager

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// An Event is an input of Stager.Step.
type Event interface{ event() }

type (
	// LaneOpened reports that another training uses the data set, as lane Lane, which must not be
	// open. World has the rank of each of its trainers. Lane 0 is open from the beginning.
	LaneOpened struct {
		Lane  int
		World []int32
	}

	// LaneClosed reports that a training has ended. Samples that only it needs are freed; those
	// delivered to its trainers are freed when they are released.
	LaneClosed struct{ Lane int }

	// Planned passes a plan of a lane, to be trained from batch From on; batches of Probe are timed.
	Planned struct {
		Lane  int
		Plan  *plan.Plan
		From  int
		Probe Probe
	}

	// Requested reports that a local trainer wants its part of a global batch of a lane. Ticket
	// names the request in Deliver.
	Requested struct {
		Lane, Trainer, Epoch, Batch int
		Ticket                      uint64
	}

	// Withdrawn reports that the requester of Ticket is gone.
	Withdrawn struct{ Ticket uint64 }

	// Released reports that the bytes of a delivered batch are no longer in use.
	Released struct{ Lease uint32 }

	// Fetched reports that a read from storage ended. Err is nil if the sample's bytes are in its
	// place. With Kept, they came from a copy on the node's disk.
	Fetched struct {
		ID   draw.SampleID
		Kept bool
		Err  error
	}

	// Reread reports that Read ended. Err is not nil if the sample was not read: then the lanes that
	// wait for it are no longer timed.
	Reread struct {
		ID  draw.SampleID
		Err error
	}

	// Starved reports that there was no memory for a fetch. It is retried after Room.
	Starved struct{ ID draw.SampleID }

	// Room reports that memory was freed since the last Starved.
	Room struct{}

	// Received reports that a peer answered Ask. Status has one entry per requested sample; the bytes
	// of those that are not Absent are in their places.
	Received struct {
		Ticket uint32
		Status []Status
	}

	// PeerLost reports that a peer did not answer Ask in time.
	PeerLost struct{ Ticket uint32 }

	// Asked reports that a peer requests samples for its trainers' part of a global batch of a lane.
	// Ticket is the peer's.
	Asked struct {
		Lane, Peer   int
		Ticket       uint32
		Epoch, Batch int
		IDs          []draw.SampleID
	}

	// Sent reports that the answer to Asked has been sent.
	Sent struct {
		Peer   int
		Ticket uint32
	}

	// Scored reports that a lane's scores changed: they include all global batches up to Batch of
	// Epoch. With an Epoch below 0 it only sets the scores.
	Scored struct {
		Lane         int
		Epoch, Batch int
		IDs          []draw.SampleID
		Scores       []float32                // of all samples
		Total        float64                  // of all scores
		Known        func(draw.SampleID) bool // whether a sample was ever scored
	}

	// Stored reports that Store ended. Err is nil if the sample is in the tier, or if Busy: then it
	// was not stored because the tier is behind, which is not a failure.
	Stored struct {
		ID   draw.SampleID
		Busy bool
		Err  error
	}

	// Recalled reports that Recall ended. Err is nil when the sample's bytes are in its place.
	Recalled struct {
		ID  draw.SampleID
		Err error
	}

	// Packed reports that Pack ended: a file of Bytes was written, unless Err is not nil.
	Packed struct {
		Package uint32
		Bytes   int64
		Err     error
	}

	// Unpacked reports that Unpack ended: Bytes were read, and the samples are in their places,
	// unless Err is not nil or there was NoRoom for one.
	Unpacked struct {
		Package uint32
		Bytes   int64
		NoRoom  bool
		Err     error
	}

	// Recovered reports the samples that are still in their places from before the rank restarted, the
	// most important first. It precedes the first Planned. Those that do not fit are freed. Their
	// bytes are not used before Check.
	Recovered struct{ IDs []draw.SampleID }

	// Checked reports that Check ended. Samples that are not Whole are fetched.
	Checked struct {
		ID    draw.SampleID
		Whole bool
	}

	// Shrunk reports that the partition has CapacityBytes from now on, which may be more than before,
	// and that the places of IDs must be freed as soon as they are unused. Samples that are not
	// residents are left alone.
	Shrunk struct {
		CapacityBytes int64
		IDs           []draw.SampleID
	}

	// Weighed reports what memory is worth to a lane relative to the others, above 0; 1 until then.
	Weighed struct {
		Lane   int
		Weight float64
	}

	// Ended reports that training is over: no more scores will come.
	Ended struct{}
)

// Status is an owner's answer about a requested sample.
type Status uint8

const (
	// Absent means not here: the peer reads storage itself.
	Absent Status = iota
	// Present means that it was here.
	Present
	// Staged means that it was read from storage for this draw.
	Staged
)

// Source is where the bytes of a delivered sample came from, numbered as in the door's protocol.
type Source uint8

// The sources.
const (
	FromLocal    Source = iota // this rank's memory
	FromPeer                   // another rank's memory
	FromStorage                // storage, as planned
	FromFallback               // storage, because a planned hit failed
	NotHere                    // nowhere: the client reads storage
	Unreadable                 // nowhere: the sample cannot be read
)

// fromTier is the source of a sample that came from the tier, or from a kept copy. It is delivered
// as FromLocal, and counted in TierHits.
const fromTier Source = 255

// A Command is an output of Stager.Step, for the rank to carry out.
type Command interface{ command() }

type (
	// Fetch reads the sample from storage into a new place; reply with Fetched or Starved. Reads are
	// ordered by Need.
	Fetch struct {
		ID   draw.SampleID
		Need uint64
	}

	// Read reads the sample from storage, never from a copy, and discards its bytes; reply with
	// Reread. Reads are ordered by Need.
	Read struct {
		ID   draw.SampleID
		Need uint64
	}

	// Timed reports that a local trainer's part of a timed batch is complete.
	Timed struct{ Lane, Trainer, Epoch, Batch int }

	// Check verifies the bytes of a recovered sample; reply with Checked. Checks are ordered by Need.
	Check struct {
		ID   draw.SampleID
		Need uint64
	}

	// Ask requests samples from a peer, into new places, for a lane; reply with Received or PeerLost.
	// A sample without room counts as Absent.
	Ask struct {
		Lane, Peer   int
		Ticket       uint32
		Epoch, Batch int
		IDs          []draw.SampleID
	}

	// Send answers a peer's Asked; reply with Sent when the memory may change again.
	Send struct {
		Peer   int
		Ticket uint32
		IDs    []draw.SampleID
		Status []Status
	}

	// Deliver gives a trainer its part of a batch. The receiver owns the slices.
	Deliver struct {
		Ticket uint64
		Lease  uint32
		IDs    []draw.SampleID
		Source []Source
		Errs   map[int]error // by place, for Unreadable
	}

	// Free frees the sample's place.
	Free struct{ ID draw.SampleID }

	// Store writes the sample to the tier; reply with Stored. Its place does not change until then.
	Store struct{ ID draw.SampleID }

	// Recall reads the sample from the tier into a new place; reply with Recalled or Starved. Reads
	// are ordered by Need.
	Recall struct {
		ID   draw.SampleID
		Need uint64
	}

	// Erase frees the sample's place in the tier, even while it is being stored or recalled; that
	// operation runs to its end.
	Erase struct{ ID draw.SampleID }

	// Pack writes samples, in order, to a file of their own, a package: those that are Here from
	// memory, the others from storage, with reads ordered by Need; reply with Packed.
	Pack struct {
		Package uint32
		IDs     []draw.SampleID
		Here    []bool
		Need    uint64
	}

	// Unpack reads a package, which holds the samples Layout, with one read, and puts those in IDs
	// into new places; reply with Unpacked. Reads are ordered by Need.
	Unpack struct {
		Package     uint32
		Layout, IDs []draw.SampleID
		Need        uint64
	}

	// Discard removes a package that is neither being written nor read.
	Discard struct{ Package uint32 }

	// EndTier abandons the failing tier. Operations in progress end, and no more are issued.
	EndTier struct{}
)

func (LaneOpened) event() {}
func (LaneClosed) event() {}
func (Planned) event()    {}
func (Requested) event()  {}
func (Withdrawn) event()  {}
func (Released) event()   {}
func (Fetched) event()    {}
func (Reread) event()     {}
func (Starved) event()    {}
func (Room) event()       {}
func (Received) event()   {}
func (PeerLost) event()   {}
func (Asked) event()      {}
func (Sent) event()       {}
func (Scored) event()     {}
func (Stored) event()     {}
func (Recalled) event()   {}
func (Recovered) event()  {}
func (Checked) event()    {}
func (Shrunk) event()     {}
func (Weighed) event()    {}
func (Ended) event()      {}
func (Packed) event()     {}
func (Unpacked) event()   {}

func (Fetch) command()   {}
func (Read) command()    {}
func (Timed) command()   {}
func (Check) command()   {}
func (Ask) command()     {}
func (Send) command()    {}
func (Deliver) command() {}
func (Free) command()    {}
func (Store) command()   {}
func (Recall) command()  {}
func (Erase) command()   {}
func (EndTier) command() {}
func (Pack) command()    {}
func (Unpack) command()  {}
func (Discard) command() {}
