package scheduler

import "time"

// A CoordinatorEvent is something that happened to the training on a data set. Coordinator.Step
// takes it. Times are durations since a moment that is the same for all events of a coordinator.
type CoordinatorEvent interface{ coordinatorEvent() }

type (
	// Remembered comes first on a rank that is restarted: its life before served a training
	// with Spec, whose trainers were on Ranks (nil: not all had come).
	Remembered struct {
		Spec  Spec
		Ranks []int32
	}
	// Vanished reports that no process of the remembered training lives. With Here that is so on
	// this rank only, and another one, which remembers it too, lets its trainers in.
	Vanished struct{ Here bool }

	// Opened reports that a trainer on Rank has opened the data set. On its own rank the
	// coordinator answers Ticket; Taken says why another process has the trainer's place there, ""
	// if none has.
	Opened struct {
		Rank   int
		Spec   Spec
		Ticket uint64
		Taken  string
	}
	// Replaced reports that another process has become trainer Trainer, as its predecessor is gone.
	Replaced struct{ Trainer int }
	// Begun reports that the stager is there, or why it cannot be had. Weighted says that the
	// sampler draws by importance.
	Begun struct {
		Weighted bool
		Chooses  bool // a system chooses what is served, by the scores of all epochs before
		Err      error
	}

	// PlanWanted reports that a trainer here asks for an epoch's plan, to train from Batch on. Its
	// reports of earlier epochs are final.
	PlanWanted struct {
		Trainer, Epoch, Batch int
		Ticket                uint64
		Now                   time.Duration
	}
	// BatchWanted reports that a trainer here asks for a batch of an epoch that has no plan here.
	BatchWanted struct{ Epoch, Batch int }
	// Trained says what a trainer on Rank reported of its part of a global batch. A Trainer of
	// AllTrainers reports every draw of the batch, in order, for all of them.
	Trained struct {
		Rank, Trainer, Epoch, Batch int
		Losses                      []float32
		// of the same draws, one after the other; nil where the system has no use for them
		Embeddings []float32
	}
	// SaveWanted reports that a trainer here makes a checkpoint of the place before Batch.
	SaveWanted struct {
		Trainer, Epoch, Batch int
		Ticket                uint64
		Now                   time.Duration
	}
	// Canceled reports that nobody waits for the answer to Ticket any more.
	Canceled struct{ Ticket uint64 }

	// Moved reports that a trainer on another rank continued to Batch of Epoch.
	Moved struct{ Rank, Trainer, Epoch, Batch int }
	// Wished reports that a trainer on another rank wants to go to Batch of Epoch, and may not yet.
	Wished struct{ Rank, Trainer, Epoch, Batch int }
	// Restarted reports that a trainer on another rank begins another life at Batch of Epoch.
	Restarted struct{ Rank, Trainer, Epoch, Batch int }
	// Saving reports that a trainer on another rank makes a checkpoint of the place before Batch.
	Saving struct{ Rank, Trainer, Epoch, Batch int }
	// Sourced reports that another rank has made an epoch's plan, from scores with this digest, and
	// has kept the state.
	Sourced struct {
		Rank       int
		Generation uint32
		Epoch      int
		Scores     Digest
	}
	// Declined reports that another rank makes no plan, and why.
	Declined struct {
		Rank int
		Why  string
	}

	// PlanMade reports that the plan of MakePlan is there. Scores is the digest of the scores that
	// it was made from, "" when the sampler is not weighted.
	PlanMade struct {
		Plan   *Plan
		Scores Digest
	}
	// Left reports that the stager has dropped the plan of an epoch.
	Left struct{ Epoch int }
	// StatesRead says what ReadStates found: the states in the rank's folder that plans were made
	// from, the state file and the one saved before it, and, where there is no state file, those
	// that were saved in the rank's folder.
	StatesRead struct {
		Kept           []StateFile
		File, Previous StateFile
		Own            []StateFile
	}
	// StateKept reports that KeepState is done: the state is on disk, or cannot be.
	StateKept struct {
		Epoch      int
		Generation uint32
	}
	// StateSaved reports that SaveState is done. Path is the state file, "" when there is none.
	StateSaved struct {
		ID     int
		Path   string
		Digest Digest
	}
	// Hung reports why no plan is to be waited for: another rank shows no sign of life.
	Hung struct{ Why string }
	// Ticked says what time it is.
	Ticked struct{ Now time.Duration }
	// Finished reports that training is over here, or that this rank may end at any moment.
	Finished struct{}
)

// AllTrainers stands for all trainers in Trained, in simulations.
const AllTrainers = -1

// A CoordinatorCommand is an order to a rank, which Coordinator.Step issues.
type CoordinatorCommand interface{ coordinatorCommand() }

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
	// Begin makes the stager, for the agreed spec and world; answer with Begun.
	Begin struct{}
	// Tell sends the event to every other rank, in order with everything else that is told.
	Tell struct{ Event CoordinatorEvent }
	// Went reports that a trainer is in Epoch from now on.
	Went struct{ Trainer, Epoch int }

	// MakePlan has the plan of an epoch made from Scores, with the owners that Place gives (nil: by
	// hash); say PlanMade. One is made at a time. Neither Scores nor what Place reads changes.
	MakePlan struct {
		Epoch  int
		Scores []float32
		Place  func(*Draws, []float32) []uint16
		Stream StreamID
		Cuts   []Cut // of the epochs before, where a system chooses by them
		// Learned is what the Learner's Cut returned with Scores, nil where there is none.
		Learned Learned
	}
	// Drive gives the stager an event, Planned or Scored. Of a Planned, Base are the scores that
	// the plan was made from.
	Drive struct {
		Event Event
		Base  []float32
	}
	// Train reports that Epoch is the newest that is trained. Scores are those that its plan was
	// made from; nil when the sampler is not weighted.
	Train struct {
		Epoch  int
		Scores []float32
	}
	// AnswerPlan answers PlanWanted. Scores is the digest of what the plan was made from.
	AnswerPlan struct {
		Ticket  uint64
		Trainer int
		Plan    *Plan
		Scores  Digest
	}
	// PlanBeside answers PlanWanted with a plan that nothing is staged by, made for this answer.
	PlanBeside struct {
		Ticket         uint64
		Trainer, Epoch int
	}
	// AnswerSave answers SaveWanted. State is "" when nothing depends on importance, or when the
	// reports of some trainers did not come in time.
	AnswerSave struct {
		Ticket uint64
		Path   string
		State  Digest
	}

	// ReadStates reads the states of this stream; answer with StatesRead.
	ReadStates struct{ Stream StreamID }
	// KeepState has the state that a plan was made from written to the rank's folder; say StateKept
	// when it is on disk. Those of KeepState and ForgetStates are done in order.
	KeepState struct {
		Snap       *Snapshot
		Generation uint32
	}
	// ForgetStates has the states of epochs before Before removed from the rank's folder.
	ForgetStates struct{ Before int }
	// SaveState has a state written to the state file, in order; say StateSaved, unless ID is 0.
	// With Previous, the state that was saved before is kept too. The snapshot's arrays are shared
	// and do not change.
	SaveState struct {
		ID       int
		Snap     *Snapshot
		Previous bool
	}
	// Log has a sentence logged.
	Log struct {
		Level LogLevel
		Text  string
		Rank  int // whom it is about; -1: no rank
		Err   error
	}
)

// LogLevel is how bad news is.
type LogLevel uint8

// The levels.
const (
	LogInfo LogLevel = iota
	LogWarning
	LogError
)

func (Remembered) coordinatorEvent()  {}
func (Vanished) coordinatorEvent()    {}
func (Opened) coordinatorEvent()      {}
func (Replaced) coordinatorEvent()    {}
func (Begun) coordinatorEvent()       {}
func (PlanWanted) coordinatorEvent()  {}
func (BatchWanted) coordinatorEvent() {}
func (Trained) coordinatorEvent()     {}
func (SaveWanted) coordinatorEvent()  {}
func (Canceled) coordinatorEvent()    {}
func (Moved) coordinatorEvent()       {}
func (Wished) coordinatorEvent()      {}
func (Restarted) coordinatorEvent()   {}
func (Saving) coordinatorEvent()      {}
func (Sourced) coordinatorEvent()     {}
func (Declined) coordinatorEvent()    {}
func (PlanMade) coordinatorEvent()    {}
func (Left) coordinatorEvent()        {}
func (StatesRead) coordinatorEvent()  {}
func (StateKept) coordinatorEvent()   {}
func (StateSaved) coordinatorEvent()  {}
func (Hung) coordinatorEvent()        {}
func (Ticked) coordinatorEvent()      {}
func (Finished) coordinatorEvent()    {}

func (Accept) coordinatorCommand()       {}
func (Refuse) coordinatorCommand()       {}
func (Begin) coordinatorCommand()        {}
func (Tell) coordinatorCommand()         {}
func (Went) coordinatorCommand()         {}
func (MakePlan) coordinatorCommand()     {}
func (Drive) coordinatorCommand()        {}
func (Train) coordinatorCommand()        {}
func (AnswerPlan) coordinatorCommand()   {}
func (PlanBeside) coordinatorCommand()   {}
func (AnswerSave) coordinatorCommand()   {}
func (ReadStates) coordinatorCommand()   {}
func (KeepState) coordinatorCommand()    {}
func (ForgetStates) coordinatorCommand() {}
func (SaveState) coordinatorCommand()    {}
func (Log) coordinatorCommand()          {}
