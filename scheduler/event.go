package scheduler

// An Event is something that happened to a rank's share of a data set. Stager.Step takes it.
type Event interface{ event() }

type (
	// LaneOpened reports that another training uses the data set: lane number Lane, which is not
	// open, of trainers on the ranks World. Lane 0 is open from the beginning.
	LaneOpened struct {
		Lane  int
		World []int32
	}

	// LaneClosed reports that a training has ended. What only that one needs is freed; what was
	// delivered to its trainers is when they release it.
	LaneClosed struct{ Lane int }

	// Planned reports that a plan of a lane is there, of which batches from From on are trained.
	Planned struct {
		Lane int
		Plan *Plan
		From int
	}

	// Requested reports that a local trainer wants its part of a global batch of a lane. Ticket
	// names the request in Deliver.
	Requested struct {
		Lane, Trainer, Epoch, Batch int
		Ticket                      uint64
	}

	// Withdrawn reports that the requester of Ticket is gone.
	Withdrawn struct{ Ticket uint64 }

	// Released reports that the bytes of a delivered batch are not read any more.
	Released struct{ Lease uint32 }

	// Fetched reports that a read of storage ended. Err is nil when the sample's bytes are in its
	// place. Kept says that they came from a copy on the node's disk instead.
	Fetched struct {
		ID   SampleID
		Kept bool
		Err  error
	}

	// Starved reports that there was no room to fetch the sample into. It is tried again after
	// Room.
	Starved struct{ ID SampleID }

	// Room reports that memory was freed since the last Starved.
	Room struct{}

	// Received reports that a peer answered Ask. Status has one entry a sample asked for; the bytes
	// of those that are not Absent are in their places.
	Received struct {
		Ticket uint32
		Status []Status
	}

	// PeerLost reports that a peer did not answer Ask in time.
	PeerLost struct{ Ticket uint32 }

	// Asked reports that a peer wants samples for its trainers' part of a global batch of a lane.
	// Ticket is the peer's.
	Asked struct {
		Lane, Peer   int
		Ticket       uint32
		Epoch, Batch int
		IDs          []SampleID
	}

	// Sent reports that the answer to Asked has left.
	Sent struct {
		Peer   int
		Ticket uint32
	}

	// Scored reports that a lane's scores of samples changed: all global batches up to Batch of
	// Epoch are in them. With an Epoch below 0 it says what the scores are, and no more.
	Scored struct {
		Lane         int
		Epoch, Batch int
		IDs          []SampleID
		Scores       []float32           // of all samples
		Total        float64             // of all scores
		Known        func(SampleID) bool // whether a sample was ever scored
	}

	// Stored reports that Store ended. Err is nil when the sample is in the tier, unless Busy: then
	// it is not because the tier is behind, and nothing failed.
	Stored struct {
		ID   SampleID
		Busy bool
		Err  error
	}

	// Recalled reports that Recall ended. Err is nil when the sample's bytes are in its place.
	Recalled struct {
		ID  SampleID
		Err error
	}

	// Preloaded reports that the bytes of samples are in their places before the first Planned,
	// each once, the most important first. Those that are not kept are freed.
	Preloaded struct{ IDs []SampleID }

	// Recovered reports that samples are residents already, in their places, since before the rank
	// restarted, the most important first. It comes before the first Planned. Those that do not fit
	// are freed. Their bytes are not used before Check.
	Recovered struct{ IDs []SampleID }

	// Checked reports that Check ended. What is not Whole is fetched.
	Checked struct {
		ID    SampleID
		Whole bool
	}

	// Shrunk reports that the partition has CapacityBytes from now on, and that the places of IDs
	// are to be freed as soon as nobody needs them. What is no resident is left alone.
	Shrunk struct {
		CapacityBytes int64
		IDs           []SampleID
	}

	// Ended reports that training is over: no more scores will come.
	Ended struct{}
)

// Status is an owner's answer about a requested sample.
type Status uint8

const (
	// Absent means: not here, the asker reads storage itself.
	Absent Status = iota
	// Present means: it was here.
	Present
	// Staged means: it was read from storage for this draw.
	Staged
)

// Source says where the bytes of a delivered sample came from. The numbers are the door protocol's.
type Source uint8

// The sources.
const (
	FromLocal    Source = iota // this rank's memory
	FromPeer                   // another rank's memory
	FromStorage                // storage, as planned
	FromFallback               // storage, because a planned hit could not be had
	NotHere                    // nowhere: the client reads storage
	Unreadable                 // nowhere: the sample cannot be read
)

// fromTier is the source of a sample that came from the tier, or from a kept copy. It is delivered
// as FromLocal, and counted in TierHits.
const fromTier Source = 255

// A Command is an order to a rank, which Stager.Step returns.
type Command interface{ command() }

type (
	// Fetch reads the sample from storage into a new place; answer with Fetched or Starved. Need
	// orders reads.
	Fetch struct {
		ID   SampleID
		Need uint64
	}

	// Check compares the bytes of a sample of Recovered with what was written; answer with Checked.
	// Need orders checks.
	Check struct {
		ID   SampleID
		Need uint64
	}

	// Ask brings samples from a peer into new places, for a lane; answer with Received or PeerLost.
	// A sample that there is no room for counts as Absent.
	Ask struct {
		Lane, Peer   int
		Ticket       uint32
		Epoch, Batch int
		IDs          []SampleID
	}

	// Send answers a peer's Asked; answer with Sent when the memory may change again.
	Send struct {
		Peer   int
		Ticket uint32
		IDs    []SampleID
		Status []Status
	}

	// Deliver gives a trainer its part of a batch. The slices are the receiver's.
	Deliver struct {
		Ticket uint64
		Lease  uint32
		IDs    []SampleID
		Source []Source
		Errs   map[int]error // by place, for Unreadable
	}

	// Free gives up the sample's place.
	Free struct{ ID SampleID }

	// Store writes the sample to the tier; answer with Stored. Its place does not change until
	// then.
	Store struct{ ID SampleID }

	// Recall reads the sample from the tier into a new place; answer with Recalled or Starved. Need
	// orders reads.
	Recall struct {
		ID   SampleID
		Need uint64
	}

	// Erase gives up the sample's place in the tier, even while it is being stored or recalled,
	// which then runs to its end.
	Erase struct{ ID SampleID }

	// EndTier gives the tier up: it fails. What is under way ends as it may, and nothing else will
	// be asked of the tier.
	EndTier struct{}
)

func (LaneOpened) event() {}
func (LaneClosed) event() {}
func (Planned) event()    {}
func (Requested) event()  {}
func (Withdrawn) event()  {}
func (Released) event()   {}
func (Fetched) event()    {}
func (Starved) event()    {}
func (Room) event()       {}
func (Received) event()   {}
func (PeerLost) event()   {}
func (Asked) event()      {}
func (Sent) event()       {}
func (Scored) event()     {}
func (Stored) event()     {}
func (Recalled) event()   {}
func (Preloaded) event()  {}
func (Recovered) event()  {}
func (Checked) event()    {}
func (Shrunk) event()     {}
func (Ended) event()      {}

func (Fetch) command()   {}
func (Check) command()   {}
func (Ask) command()     {}
func (Send) command()    {}
func (Deliver) command() {}
func (Free) command()    {}
func (Store) command()   {}
func (Recall) command()  {}
func (Erase) command()   {}
func (EndTier) command() {}
