package protocol

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// update makes TestCoordinatorScenarios write the commands that it sees into the scenario files.
var update = flag.Bool("update", false, "write the scenarios' expected commands anew")

// TestCoordinatorScenarios plays each file of testdata/coordinator: one event per line, and below
// it, each after "->", the commands that it must cause. testdata/coordinator/README.md explains the
// lines.
func TestCoordinatorScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/coordinator/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			switch {
			case *update:
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			case got != string(text):
				t.Errorf("%s\nfirst line that differs: %s", got, firstDifference(got, string(text)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("%d: %q, want %q", i+1, a[i], b[min(i, len(b)-1)])
		}
	}
	return fmt.Sprintf("%d: there is more", len(a))
}

// play returns the scenario with the commands that its events caused.
func play(t *testing.T, text string) string {
	t.Helper()
	s := &scenario{t: t, disk: map[string][]byte{}}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "-> ") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s.line(line)
		for _, c := range grouped(s.out) {
			out.WriteString("-> " + c + "\n")
		}
		s.out = nil
	}
	return out.String()
}

// scenario is a rank whose files are in memory. It executes a command only on the lines that name
// it.
type scenario struct {
	t       *testing.T
	c       *Coordinator
	spec    Spec
	plan    plan.Config
	ranks   int
	making  []MakePlan
	keeping []KeepState
	saving  []SaveState
	disk    map[string][]byte // by name of the file
	saves   Digest            // of the newest state of a checkpoint that is to be saved
	saved   Digest            // of the newest one that is
	earlier Digest            // of the one that "remember" swaps with it
	sources map[int]Digest    // by epoch: what this rank planned from
	out     []string
}

// scenarioSamples gives epochs of 16 batches, of which those before 14 are before the cut.
const scenarioSamples = 64

// args are what follows the first word of a line: name=value.
type args map[string]string

func (a args) int(name string, otherwise int) int {
	if a[name] == "" {
		return otherwise
	}
	n, err := strconv.Atoi(a[name])
	if err != nil {
		panic(fmt.Sprintf("%s=%s: %v", name, a[name], err))
	}
	return n
}

func (a args) now() time.Duration {
	d, err := time.ParseDuration(a["at"])
	if err != nil && a["at"] != "" {
		panic(err)
	}
	return d
}

func (s *scenario) line(line string) {
	s.t.Helper()
	words := strings.Fields(line)
	a := args{}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		a[name] = value
	}
	switch words[0] {
	case "rank":
		s.start(a)
	case "made":
		s.made()
	case "kept":
		s.kept()
	case "saved":
		if a["rank"] != "" {
			s.step(Saved{a.int("rank", 0), s.c.cfg.StatePath, s.saves})
		} else {
			s.writeState()
		}
	case "read":
		s.read()
	case "remember":
		s.saved, s.earlier = s.earlier, s.saved
	case "lose":
		for name := range s.disk {
			if a["file"] == "" || a["file"] == name {
				delete(s.disk, name)
			}
		}
	case "train":
		for batch := a.int("from", 0); batch < a.int("to", 0); batch++ {
			for trainer := range s.spec.World {
				if a["trainer"] == "" || a.int("trainer", 0) == trainer {
					s.step(s.trained(trainer, a.int("epoch", 0), batch))
				}
			}
		}
	default:
		s.step(s.event(words[0], a))
	}
}

// grouped merges commands that differ only in their batch into one line.
func grouped(lines []string) []string {
	var order []string
	batches := map[string][]int{}
	for _, line := range lines {
		text, number, ok := strings.Cut(line, ", batch ")
		batch, err := strconv.Atoi(number)
		if !ok || err != nil {
			text = line
		}
		if !slices.Contains(order, text) {
			order = append(order, text)
		}
		if ok && err == nil && !slices.Contains(batches[text], batch) {
			batches[text] = append(batches[text], batch)
		}
	}
	for i, text := range order {
		switch b := batches[text]; len(b) {
		case 0:
		case 1:
			order[i] += fmt.Sprintf(", batch %d", b[0])
		default:
			order[i] += fmt.Sprintf(", batches %d to %d", b[0], b[len(b)-1])
		}
	}
	return order
}

// start begins a life of the rank.
func (s *scenario) start(a args) {
	world := a.int("world", 1)
	s.spec = Spec{Data: "train", Sampler: "pads", Seed: 1, BatchSize: 4 / world, World: world}
	if a["sampler"] != "" {
		s.spec.Sampler = a["sampler"]
	}
	s.ranks = a.int("ranks", 1)
	s.plan = plan.Config{Samples: scenarioSamples, BatchSize: s.spec.BatchSize, Ranks: s.ranks}
	for trainer := range world {
		rank := min(a.int("at", 0)+trainer*s.ranks/world, s.ranks-1)
		s.plan.World = append(s.plan.World, int32(rank))
	}
	sampler, err := draw.NewSampler(s.spec.SamplerConfig(scenarioSamples))
	if err != nil {
		s.t.Fatal(err)
	}
	s.plan.Sampler, s.sources, s.making, s.keeping = sampler, map[int]Digest{}, nil, nil
	s.c = New(Config{
		Rank: a.int("number", 0), Ranks: s.ranks,
		Data: "train", Samples: scenarioSamples, StatePath: a["state"],
		StateOptional: a["optional"] != "",
		Learner: func() Learner {
			if a["learns"] == "" {
				return nil
			}
			return &counter{}
		},
	})
}

// counter is a Learner that counts folded batches, of epochs whose plan it has and of those before.
type counter struct {
	batches int
	opened  []int
}

func (l *counter) Begin(_ []float32, learned []byte) (err error) {
	if l.batches = 0; learned != nil {
		l.batches, err = strconv.Atoi(string(learned))
	}
	return err
}

func (l *counter) Open(p *plan.Plan, learned Learned) {
	if learned == nil {
		panic("a plan that was made from nothing")
	}
	l.opened = append(l.opened, p.Epoch)
}

func (l *counter) Learn(f Folded, _ []float32) {
	if !slices.Contains(l.opened, f.Epoch) && !slices.Contains(l.opened, f.Epoch+1) {
		panic(fmt.Sprintf("a batch of epoch %d was learned before there was a plan", f.Epoch))
	}
	l.batches++
}

// Cut adds a measured accuracy, in percent, to the count.
func (l *counter) Cut(_ []float32, accuracy float32) Learned {
	if accuracy == accuracy {
		l.batches += 1000 * int(100*accuracy)
	}
	return Known(strconv.AppendInt(nil, int64(l.batches), 10))
}

func (s *scenario) step(e Event) {
	s.c.Step(e, func(c Command) {
		switch c := c.(type) {
		case MakePlan:
			s.making = append(s.making, c)
		case KeepState:
			s.keeping = append(s.keeping, c)
		case SaveState:
			s.saving = append(s.saving, c)
			if c.Snap.Checkpoint {
				s.saves = c.Snap.Digest()
			}
		case ForgetStates:
			for name := range s.disk {
				if epoch, err := strconv.Atoi(strings.TrimPrefix(name, "kept-")); err == nil &&
					epoch < c.Before {
					delete(s.disk, name)
				}
			}
		}
		if text := say(c); text != "" {
			s.out = append(s.out, text)
		}
	})
}

// event returns the event of a line.
func (s *scenario) event(name string, a args) Event {
	rank, trainer, epoch, batch := a.int("rank", 0), a.int("trainer", 0), a.int("epoch", 0),
		a.int("batch", 0)
	ticket := uint64(a.int("ticket", 0))
	switch name {
	case "opened":
		return s.opened(rank, trainer, ticket, a)
	case "begun":
		return Begun{Weighted: s.plan.Sampler.Weighted()}
	case "plan-wanted":
		return PlanWanted{trainer, epoch, batch, ticket, a.now()}
	case "batch-wanted":
		return BatchWanted{epoch, batch}
	case "measured":
		return Measured{rank, trainer, epoch, float32(a.int("percent", 0)) / 100}
	case "listed":
		return s.listed(rank, trainer, epoch, a)
	case "save-wanted":
		return SaveWanted{trainer, epoch, batch, ticket, a.now()}
	case "canceled":
		return Canceled{ticket}
	case "moved":
		return Moved{rank, trainer, epoch, batch}
	case "wished":
		return Wished{rank, trainer, epoch, batch}
	case "restarted":
		return Restarted{rank, trainer, epoch, batch}
	case "saving":
		return Saving{rank, trainer, epoch, batch}
	case "sourced":
		e := Sourced{
			Rank: rank, Epoch: epoch, Generation: uint32(a.int("generation", 0)),
			Scores: s.sources[epoch],
		}
		if a["scores"] != "" {
			e.Scores = Digest(a["scores"])
		}
		return e
	case "declined":
		return Declined{rank, "its scores are lost"}
	case "hung":
		return Hung{fmt.Sprintf("rank %d has not answered for 30s", rank)}
	case "ticked":
		return Ticked{a.now()}
	case "left":
		return Left{epoch}
	case "finished":
		return Finished{}
	}
	s.t.Fatalf("unknown event %q", name)
	return nil
}

// opened: life, turn, planned (epochs) and checkpoint (epoch.batch, of the newest saved state) are
// from the trainer's description of its training.
func (s *scenario) opened(rank, trainer int, ticket uint64, a args) Event {
	spec := s.spec
	spec.Trainer = trainer
	spec.Seed = int64(a.int("seed", int(spec.Seed)))
	spec.Epochs = a.int("epochs", 0)
	spec.Training = &Training{Life: uint64(a.int("life", 1)), Turn: uint32(a.int("turn", 0))}
	if a["worker"] != "" {
		spec.Training = nil
	}
	for _, text := range strings.FieldsFunc(a["planned"], func(r rune) bool { return r == ',' }) {
		epoch, err := strconv.Atoi(text)
		if err != nil {
			s.t.Fatal(err)
		}
		spec.Training.Planned = append(spec.Training.Planned, PlanSource{epoch, s.sources[epoch]})
	}
	if at := a["checkpoint"]; at != "" {
		c := &Checkpoint{State: s.saved, Processes: a.int("processes", 0)}
		if _, err := fmt.Sscanf(at, "%d.%d", &c.Epoch, &c.Batch); err != nil {
			s.t.Fatal(err)
		}
		spec.Training.Checkpoint = c
	}
	return Opened{
		Rank: rank, Spec: spec, Ticket: ticket,
		Taken: strings.ReplaceAll(a["taken"], "_", " "),
	}
}

// listed hands in the ids of one-sample batches, ids=3,4,5, or says that the part is final.
func (s *scenario) listed(rank, trainer, epoch int, a args) Event {
	e := Listed{Rank: rank, Trainer: trainer, Epoch: epoch, Final: a["ahead"] == ""}
	if a["confirms"] != "" {
		return e
	}
	e.List = &plan.List{Counts: []int32{}}
	for _, id := range strings.FieldsFunc(a["ids"], func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(id)
		if err != nil {
			s.t.Fatal(err)
		}
		e.List.Counts = append(e.List.Counts, 1)
		e.List.IDs = append(e.List.IDs, draw.SampleID(n))
	}
	return e
}

// trained is a report of losses that grow with the sample's number.
func (s *scenario) trained(trainer, epoch, batch int) Event {
	e := Trained{Rank: int(s.plan.World[trainer]), Trainer: trainer, Epoch: epoch, Batch: batch}
	plan := s.c.Plan(epoch)
	if plan == nil {
		s.t.Fatalf("epoch %d is not open", epoch)
	}
	for _, id := range plan.Part(batch, trainer) {
		e.Losses = append(e.Losses, 1+float32(id))
	}
	return e
}

func (s *scenario) made() {
	if len(s.making) == 0 {
		s.t.Fatal("made: nothing is under way")
	}
	m := s.making[0]
	s.making = s.making[1:]
	cfg := s.plan
	cfg.Lists = m.Lists
	e := PlanMade{Plan: plan.New(cfg, m.Epoch, m.Scores)}
	if cfg.Sampler.Weighted() {
		e.Scores = m.Digest()
		s.sources[m.Epoch] = e.Scores
	}
	s.step(e)
}

func (s *scenario) kept() {
	if len(s.keeping) == 0 {
		s.t.Fatal("kept: nothing is under way")
	}
	k := s.keeping[0]
	s.keeping = s.keeping[1:]
	s.disk[fmt.Sprintf("kept-%d", k.Snap.Epoch)] = k.Snap.Encode()
	s.step(StateKept{k.Snap.Epoch, k.Generation})
}

func (s *scenario) writeState() {
	if len(s.saving) == 0 {
		s.t.Fatal("saved: nothing is under way")
	}
	w := s.saving[0]
	s.saving = s.saving[1:]
	path := s.c.cfg.StatePath
	if s.c.cfg.Rank != 0 {
		s.step(StateSaved{w.ID, "", w.Snap.Digest()})
		return
	}
	if w.Previous && s.disk[path] != nil {
		s.disk[path+".previous"] = s.disk[path]
	}
	s.disk[path] = w.Snap.Encode()
	if w.Snap.Checkpoint {
		s.saved, s.earlier = w.Snap.Digest(), s.saved
	}
	s.step(StateSaved{w.ID, path, w.Snap.Digest()})
}

// read reads what is on disk.
func (s *scenario) read() {
	file := func(name string) StateFile {
		if s.disk[name] == nil {
			return StateFile{}
		}
		snap, err := DecodeSnapshot(s.disk[name])
		return StateFile{Path: name, Snap: snap, Err: err}
	}
	var e StatesRead
	for epoch := range 10 {
		if f := file(fmt.Sprintf("kept-%d", epoch)); f.Snap != nil {
			e.Kept = append(e.Kept, f)
		}
	}
	if path := s.c.cfg.StatePath; path != "" {
		e.File, e.Previous = file(path), file(path+".previous")
	}
	s.step(e)
}

// sayLearned formats what a counter has learned; "" for nothing.
func sayLearned(learned Learned) string {
	if learned == nil {
		return ""
	}
	return fmt.Sprintf(", by what %s batches have taught", learned())
}

// sayProcesses formats the number of processes that a plan is padded for; "" if as many train.
func sayProcesses(processes int) string {
	if processes == 0 {
		return ""
	}
	return fmt.Sprintf(", for %d processes", processes)
}

// sayLists formats what trainers have handed in; "" if they hand in nothing.
func sayLists(lists []plan.List) (text string) {
	for t, l := range lists {
		text += fmt.Sprintf(", trainer %d with %v", t, l.IDs)
	}
	return text
}

// say formats a command as in scenarios; "" for one that they leave out.
func say(c Command) string {
	switch c := c.(type) {
	case Accept:
		return fmt.Sprintf("accept ticket=%d", c.Ticket)
	case Refuse:
		if c.Retry {
			return fmt.Sprintf("refuse ticket=%d, which may ask again: %s", c.Ticket, c.Why)
		}
		return fmt.Sprintf("refuse ticket=%d: %s", c.Ticket, c.Why)
	case Begin:
		return "make the stager"
	case Tell:
		return "tell the other ranks: " + sayEvent(c.Event)
	case Went:
		return fmt.Sprintf("trainer %d went to epoch %d", c.Trainer, c.Epoch)
	case MakePlan:
		return fmt.Sprintf("make the plan of epoch %d%s%s%s%s", c.Epoch, sayScores(c.Scores),
			sayLearned(c.Learned), sayProcesses(c.Processes), sayLists(c.Lists))
	case Stage:
		if c.From > 0 {
			return fmt.Sprintf("stage epoch %d from batch %d on", c.Plan.Epoch, c.From)
		}
		return fmt.Sprintf("stage epoch %d", c.Plan.Epoch)
	case Rescore:
		if c.Epoch < 0 {
			return "tell the stager all scores"
		}
		return fmt.Sprintf("tell the stager the scores of epoch %d, batch %d", c.Epoch, c.Batch)
	case Train:
		return fmt.Sprintf("epoch %d is trained", c.Epoch)
	case AnswerPlan:
		return fmt.Sprintf("answer ticket=%d: the plan of epoch %d", c.Ticket, c.Plan.Epoch)
	case AnswerSave:
		return fmt.Sprintf("answer ticket=%d: saved %q, state %.8s", c.Ticket, c.Path, c.State)
	case ReadStates:
		return "read the states that were kept"
	case KeepState:
		return "keep the state of " + saySnapshot(c.Snap)
	case ForgetStates:
		if c.Before == math.MaxInt {
			return "forget all states that were kept"
		}
		return fmt.Sprintf("forget states of epochs before %d", c.Before)
	case SaveState:
		return "save the state of " + saySnapshot(c.Snap)
	case Log:
		text := []string{"log", "warn", "complain"}[c.Level] + ": " + c.Text
		if c.Rank >= 0 {
			text += fmt.Sprintf(" (rank %d)", c.Rank)
		}
		if c.Err != nil {
			text += ": " + c.Err.Error()
		}
		return text
	}
	return fmt.Sprintf("%T%+v", c, c)
}

func sayScores(scores []float32) string {
	if scores == nil {
		return ""
	}
	equal := !slices.ContainsFunc(scores, func(v float32) bool { return v != scores[0] })
	if equal {
		return " from equal scores"
	}
	return " from scores " + string((&Snapshot{Scores: scores}).Digest()[:8])
}

func saySnapshot(s *Snapshot) string {
	text := fmt.Sprintf("epoch %d", s.Epoch)
	if s.Final > 0 {
		text += fmt.Sprintf(" after %d batches", s.Final)
	}
	if s.TailDraws > 0 {
		text += fmt.Sprintf(", with reports of epoch %d from batch %d on", s.TailEpoch, s.TailBatch)
	}
	return text
}

func sayEvent(e Event) string {
	switch e := e.(type) {
	case Opened:
		return fmt.Sprintf("trainer %d has opened the data set", e.Spec.Trainer)
	case Measured:
		return fmt.Sprintf("trainer %d measured %.0f %% after epoch %d", e.Trainer, 100*e.Accuracy,
			e.Epoch)
	case Moved:
		return fmt.Sprintf("trainer %d moved to epoch %d, batch %d", e.Trainer, e.Epoch, e.Batch)
	case Wished:
		return fmt.Sprintf("trainer %d wants to go to epoch %d, batch %d", e.Trainer, e.Epoch,
			e.Batch)
	case Restarted:
		return fmt.Sprintf("trainer %d begins another life at epoch %d, batch %d", e.Trainer,
			e.Epoch, e.Batch)
	case Saving:
		return fmt.Sprintf("trainer %d saves before epoch %d, batch %d", e.Trainer, e.Epoch,
			e.Batch)
	case Trained:
		return fmt.Sprintf("trainer %d reports epoch %d, batch %d", e.Trainer, e.Epoch, e.Batch)
	case Saved:
		return fmt.Sprintf("state %.8s is saved", e.State)
	case Sourced:
		return fmt.Sprintf("epoch %d is planned here, generation %d", e.Epoch, e.Generation)
	case Listed:
		text := fmt.Sprintf("trainer %d hands in epoch %d", e.Trainer, e.Epoch)
		if e.List == nil {
			text += " for good"
		} else if !e.Final {
			text += " ahead"
		}
		return text
	case Declined:
		return "no plan here: " + e.Why
	}
	return fmt.Sprintf("%T%+v", e, e)
}
