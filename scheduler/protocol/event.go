package protocol

import (
	"time"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// An Event is an input of Coordinator.Step. Times are durations since a moment that is
// the same for all events of a coordinator.
type Event interface{ event() }

type (
	// Opened reports that a trainer on Rank has opened the data set. On its own rank the coordinator
	// answers Ticket; Taken is the error if another process has the trainer's place there, else "".
	Opened struct {
		Rank   int
		Spec   Spec
		Ticket uint64
		Taken  string
	}
	// Replaced reports that another process has become trainer Trainer after its predecessor's death.
	Replaced struct{ Trainer int }
	// Begun reports that the stager exists, or why it cannot be created. With Weighted, the sampler
	// draws by importance.
	Begun struct {
		Weighted bool
		Chooses  bool // a system chooses what is served from the scores of all earlier epochs
		Err      error
	}

	// PlanWanted reports that a trainer here requests an epoch's plan, to train from Batch on. Its
	// reports of earlier epochs are final.
	PlanWanted struct {
		Trainer, Epoch, Batch int
		Ticket                uint64
		Now                   time.Duration
	}
	// BatchWanted reports that a trainer here requests a batch of an epoch that has no plan here.
	BatchWanted struct{ Epoch, Batch int }
	// Trained holds what a trainer on Rank reported for its part of a global batch. With AllTrainers
	// as Trainer, it holds every draw of the batch, in order.
	Trained struct {
		Rank, Trainer, Epoch, Batch int
		Losses                      []float32
		// of the same draws, concatenated; nil if the system does not use them
		Embeddings []float32
	}
	// Measured reports the accuracy of a model after an epoch, as a trainer on Rank has measured it,
	// before it reported anything of the next epoch.
	Measured struct {
		Rank, Trainer, Epoch int
		Accuracy             float32
	}
	// Listed reports that a trainer on Rank hands in its part of an epoch, or with a nil List that the
	// part it has handed in is final. Until a part is final, another one may replace it.
	Listed struct {
		Rank, Trainer, Epoch int
		Final                bool
		List                 *plan.List
	}
	// SaveWanted reports that a trainer here makes a checkpoint of the position before Batch.
	SaveWanted struct {
		Trainer, Epoch, Batch int
		Ticket                uint64
		Now                   time.Duration
	}
	// Canceled reports that the answer to Ticket is no longer needed.
	Canceled struct{ Ticket uint64 }

	// Moved reports that a trainer on another rank moved to Batch of Epoch.
	Moved struct{ Rank, Trainer, Epoch, Batch int }
	// Wished reports that a trainer on another rank waits to move to Batch of Epoch.
	Wished struct{ Rank, Trainer, Epoch, Batch int }
	// Restarted reports that a trainer on another rank begins another life at Batch of Epoch.
	Restarted struct{ Rank, Trainer, Epoch, Batch int }
	// Saving reports that a trainer on another rank makes a checkpoint of the position before Batch.
	Saving struct{ Rank, Trainer, Epoch, Batch int }
	// Saved reports that rank 0 has saved the state with this digest. Path is the state file, "" if
	// there is none.
	Saved struct {
		Rank  int
		Path  string
		State Digest
	}
	// Sourced reports that another rank has made an epoch's plan, from scores with this digest, and
	// has saved the state.
	Sourced struct {
		Rank       int
		Generation uint32
		Epoch      int
		Scores     Digest
	}
	// Declined reports that another rank cannot make a plan, and why.
	Declined struct {
		Rank int
		Why  string
	}

	// PlanMade reports that MakePlan is done. Scores is the digest of what the plan was made from, see
	// MakePlan.Digest, "" if the sampler is not weighted.
	PlanMade struct {
		Plan   *plan.Plan
		Scores Digest
	}
	// Left reports that the stager has dropped the plan of an epoch.
	Left struct{ Epoch int }
	// StatesRead holds what ReadStates found. Kept are the states in the rank's folder that plans were
	// made from. File is the state file, and Previous the one saved before it. Own are, without a
	// state file, the states that were saved in the rank's folder.
	StatesRead struct {
		Kept           []StateFile
		File, Previous StateFile
		Own            []StateFile
	}
	// StateKept reports that KeepState is done: the state is on disk, or could not be written.
	StateKept struct {
		Epoch      int
		Generation uint32
	}
	// StateSaved reports that SaveState is done. Path is the state file, "" if there is none.
	StateSaved struct {
		ID     int
		Path   string
		Digest Digest
	}
	// Hung reports that no plan can be expected, since another rank shows no sign of life.
	Hung struct{ Why string }
	// Ticked reports the time.
	Ticked struct{ Now time.Duration }
	// Finished reports that training has ended here, or that this rank may end at any moment.
	Finished struct{}
)

// AllTrainers stands for all trainers in a report, in simulations.
const AllTrainers = -1

// A Command is an output of Coordinator.Step, for the rank to carry out.
type Command interface{ command() }

type (
	// Accept answers Opened.
	Accept struct{ Ticket uint64 }
	// Refuse answers Opened, PlanWanted or SaveWanted with an error. With Retry, asking again may
	// help.
	Refuse struct {
		Ticket uint64
		Retry  bool
		Why    string
	}
	// Begin creates the stager for the agreed spec and world; reply with Begun.
	Begin struct{}
	// Tell sends the event to every other rank, in order with all other Tells.
	Tell struct{ Event Event }
	// Went reports that a trainer is in Epoch from now on.
	Went struct{ Trainer, Epoch int }

	// MakePlan makes the plan of an epoch from Scores; reply with PlanMade. One plan is made at a
	// time. Scores do not change meanwhile.
	MakePlan struct {
		Epoch  int
		Scores []float32
		// Processes is how many processes the training began with, see SamplerConfig.Processes; 0: as
		// many as train now.
		Processes int
		Stream    StreamID
		Cuts      []Cut // of earlier epochs, if a system chooses by them
		// Lists are the trainers' parts of the epoch, with the sampler listed.
		Lists []plan.List
		// Learned is what the Learner's Cut returned for Scores, nil if there is no Learner.
		Learned Learned
	}
	// Stage passes a plan, to be trained from batch From on, to the stager. Base has the scores that
	// it was made from.
	Stage struct {
		Plan *plan.Plan
		From int
		Base []float32
	}
	// Rescore passes scores that have changed to the stager: they include all global batches up to
	// Batch of Epoch. With an Epoch below 0 it only sets the scores. They are the ledger's own, and
	// change before the next Rescore.
	Rescore struct {
		Epoch, Batch int
		IDs          []draw.SampleID
		Scores       []float32                // of all samples
		Total        float64                  // of all scores
		Known        func(draw.SampleID) bool // whether a sample was ever scored
	}
	// Train reports that Epoch is now the newest in training. Scores has those that its plan was made
	// from; nil if the sampler is not weighted. Draws are the plan's.
	Train struct {
		Epoch  int
		Scores []float32
		Draws  *draw.Draws
	}
	// AnswerPlan answers PlanWanted. Scores is the digest of what the plan was made from.
	AnswerPlan struct {
		Ticket  uint64
		Trainer int
		Plan    *plan.Plan
		Scores  Digest
	}
	// AnswerSave answers SaveWanted, after the state is on disk. State is "" if nothing depends on
	// importance, if reports of some trainers did not arrive in time, or if rank 0 did not save the
	// state in time.
	AnswerSave struct {
		Ticket uint64
		Path   string
		State  Digest
	}

	// ReadStates reads the states of this stream; reply with StatesRead.
	ReadStates struct{ Stream StreamID }
	// KeepState writes the state that a plan was made from to the rank's folder; reply with StateKept
	// when it is on disk. KeepState and ForgetStates are carried out in order.
	KeepState struct {
		Snap       *Snapshot
		Generation uint32
	}
	// ForgetStates removes the states of epochs before Before from the rank's folder.
	ForgetStates struct{ Before int }
	// SaveState writes the state file, in order; reply with StateSaved, unless ID is 0. With Previous,
	// the state that was saved before is kept, too. The snapshot's arrays are shared and do not
	// change.
	SaveState struct {
		ID       int
		Snap     *Snapshot
		Previous bool
	}
	// Log logs a sentence.
	Log struct {
		Level LogLevel
		Text  string
		Rank  int // the rank it is about; -1: none
		Err   error
	}
)

// Digest returns the digest of what the plan is made from.
func (m *MakePlan) Digest() Digest {
	return sourceDigest(m.Stream, &Snapshot{Epoch: m.Epoch, Scores: m.Scores})
}

// LogLevel is the severity of a Log.
type LogLevel uint8

// The levels.
const (
	LogInfo LogLevel = iota
	LogWarning
	LogError
)

func (Opened) event()      {}
func (Replaced) event()    {}
func (Begun) event()       {}
func (PlanWanted) event()  {}
func (BatchWanted) event() {}
func (Trained) event()     {}
func (Measured) event()    {}
func (Listed) event()      {}
func (SaveWanted) event()  {}
func (Canceled) event()    {}
func (Moved) event()       {}
func (Wished) event()      {}
func (Restarted) event()   {}
func (Saving) event()      {}
func (Saved) event()       {}
func (Sourced) event()     {}
func (Declined) event()    {}
func (PlanMade) event()    {}
func (Left) event()        {}
func (StatesRead) event()  {}
func (StateKept) event()   {}
func (StateSaved) event()  {}
func (Hung) event()        {}
func (Ticked) event()      {}
func (Finished) event()    {}

func (Accept) command()       {}
func (Refuse) command()       {}
func (Begin) command()        {}
func (Tell) command()         {}
func (Went) command()         {}
func (MakePlan) command()     {}
func (Stage) command()        {}
func (Rescore) command()      {}
func (Train) command()        {}
func (AnswerPlan) command()   {}
func (AnswerSave) command()   {}
func (ReadStates) command()   {}
func (KeepState) command()    {}
func (ForgetStates) command() {}
func (SaveState) command()    {}
func (Log) command()          {}
