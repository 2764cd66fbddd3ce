package record

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"rankpool/scheduler"
	"rankpool/scheduler/systems"
)

// A Row is what one life of a rank decided about one data set.
type Row struct {
	Rank     int    `json:"rank"`
	Start    int    `json:"start"` // 1: the rank's first life, 2: after it was restarted, …
	Data     string `json:"data"`
	Epochs   int    `json:"epochs"` // that were planned
	Events   int64  `json:"events"`
	Commands int64  `json:"commands"`
	// of the data set's coordinator
	CoordinatorEvents int64 `json:"coordinator_events"`
}

// Difference is the first event that caused other commands than were recorded.
type Difference struct {
	Rank     int      `json:"rank"`
	Start    int      `json:"start"`
	Data     string   `json:"data"`
	Number   int64    `json:"number"` // of the event, of this rank, start and data set, from 1
	Event    string   `json:"event"`
	Recorded []string `json:"recorded"`
	Replayed []string `json:"replayed"`
}

// A Life is a part of a recording: what a rank wrote between its start and its end.
type Life struct {
	Begin
	Ended bool   `json:"ended"`         // false: it was killed, and up to a second is missing
	Why   string `json:"why,omitempty"` // why the recording ended before the rank did
}

// A Result is the result of a replay.
type Result struct {
	Lives      []Life      `json:"lives"`
	Rows       []Row       `json:"rows"`
	Difference *Difference `json:"difference,omitempty"` // nil: the commands are identical
}

// Replay passes the recorded events of one rank to new coordinators and stagers and compares the
// resulting commands with the recorded ones, up to the first difference. A truncated recording is
// replayed as far as it goes. It returns an error, and the result so far, if the recording cannot
// be read, has another format, or is damaged.
func Replay(recording io.Reader) (*Result, error) {
	return replay(recording, math.MaxInt32)
}

func replay(recording io.Reader, drawsMax int) (*Result, error) {
	p := &player{drawsMax: drawsMax}
	c := chunks{r: recording}
	if err := c.open(); err != nil {
		return &p.Result, fmt.Errorf("record: %w", err)
	}
	for p.Difference == nil {
		stream, err := c.next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err == nil {
			err = p.play(stream)
		}
		if err != nil {
			return &p.Result, fmt.Errorf("record: %w", err)
		}
	}
	if len(p.Lives) == 0 {
		return &p.Result, errors.New("record: nothing was recorded")
	}
	return &p.Result, nil
}

// player is a replay under way.
type player struct {
	Result
	drawsMax int // limit on samples, and on draws in a global batch
	streams  map[int]*replayed
	// by the number of the data set, like streams
	coordinators map[int]*coordinated
}

// replayed is a data set in a replay.
type replayed struct {
	*scheduler.Stager
	plans  scheduler.PlanConfig
	base   []float32
	scores []float32
	known  []byte
	epochs map[int]bool
	row    int // in Rows
}

// play plays the entries of a chunk.
func (p *player) play(stream []byte) error {
	d := gob.NewDecoder(bytes.NewReader(stream))
	for p.Difference == nil {
		var e entry
		err := d.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = p.entry(&e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.where(), noEOF(err))
		}
	}
	return nil
}

var errMalformed = errors.New("malformed entry")

func (p *player) entry(e *entry) error {
	if e.Begin == nil && len(p.Lives) == 0 {
		return errors.New("it does not begin with its header")
	}
	s, coordinator := p.streams[e.Stream], p.coordinators[e.Stream]
	switch {
	case e.Begin != nil:
		p.Lives = append(p.Lives, Life{Begin: *e.Begin})
		p.streams, p.coordinators = map[int]*replayed{}, map[int]*coordinated{}
	case e.Coordinator != nil:
		return p.coordinate(e.Stream, e.Coordinator)
	case coordinator != nil && e.Told != nil:
		err := coordinator.told(e.Told, p.drawsMax)
		if s != nil {
			p.Rows[s.row].CoordinatorEvents = coordinator.events
		}
		return err
	case coordinator != nil && e.Did != nil:
		p.did(coordinator, e.Did.Commands)
	case e.End != nil:
		life := &p.Lives[len(p.Lives)-1]
		life.Why, life.Ended = e.End.Why, true
	case e.Setup != nil:
		return p.setUp(e.Stream, e.Setup, e.Sizes)
	case s == nil:
		return errMalformed
	case e.Base != nil:
		s.base = e.Base
	case e.Cuts != nil:
		return s.follow(e.Cuts)
	case e.Learned != nil:
		return s.learn(e.Learned)
	case e.Event != nil:
		return p.event(s, e)
	default:
		return errMalformed
	}
	return nil
}

// follow makes a system choose for the epochs before, by the scores at their cuts.
func (s *replayed) follow(cuts []scheduler.Cut) error {
	chooser, ok := s.plans.Sampler.(*systems.Chooser)
	if !ok || chooser.Follows() {
		return errMalformed
	}
	for _, cut := range cuts {
		if len(cut.Scores) != s.plans.Samples || cut.Epoch < 0 ||
			slices.ContainsFunc(cut.Scores,
				func(x float32) bool { return !(x >= 0 && x <= math.MaxFloat32) }) {
			return errMalformed
		}
	}
	chooser.Follow(math.MaxInt, cuts)
	return nil
}

// learn makes a system draw the next epoch by what it has learned.
func (s *replayed) learn(learned []byte) error {
	switch own := s.plans.Sampler.(type) {
	case *systems.Learner:
		return own.Begin(make([]float32, s.plans.Samples), learned)
	case *systems.Chooser:
		if own.Follows() {
			return own.Begin(learned)
		}
	}
	return errMalformed
}

// where describes the position of the replay.
func (p *player) where() string {
	events := int64(0)
	for _, r := range p.Rows {
		events += r.Events
	}
	return fmt.Sprintf("after %d events", events)
}

func (p *player) setUp(stream int, setup *Setup, sizes []int64) error {
	setup.Size = sizeIn(sizes)
	s := &replayed{epochs: map[int]bool{}, row: len(p.Rows)}
	var err error
	if err = setup.check(sizes, p.drawsMax); err == nil {
		s.plans, s.Stager, err = setup.New()
	}
	if err != nil {
		return fmt.Errorf("the header of data set %q: %w", setup.Data, err)
	}
	if c := p.coordinators[stream]; c != nil {
		if err := c.begin(setup); err != nil {
			return fmt.Errorf("the coordinator of data set %q: %w", setup.Data, err)
		}
	}
	p.streams[stream] = s
	p.Rows = append(p.Rows, Row{Rank: setup.Rank, Start: len(p.Lives), Data: setup.Data})
	return nil
}

// check returns an error when a header contradicts itself.
func (s *Setup) check(sizes []int64, drawsMax int) error {
	trainers := len(s.World)
	switch {
	case s.Sampler.Samples < 1 || s.Sampler.Samples > drawsMax:
		return fmt.Errorf("it has %d samples", s.Sampler.Samples)
	case len(sizes) != 1 && len(sizes) != s.Sampler.Samples:
		return fmt.Errorf("it has %d sizes for %d samples", len(sizes), s.Sampler.Samples)
	case trainers == 0 || s.Sampler.World != trainers:
		return fmt.Errorf("it has %d trainers and ranks of %d", s.Sampler.World, trainers)
	case s.Sampler.BatchSize < 1 || s.Sampler.BatchSize > drawsMax/trainers:
		return fmt.Errorf("its batch size is %d", s.Sampler.BatchSize)
	case s.Rank < 0 || s.Rank >= s.Ranks || s.Ranks > math.MaxUint16:
		return fmt.Errorf("it is of rank %d of %d", s.Rank, s.Ranks)
	}
	for _, rank := range s.World {
		if rank < 0 || int(rank) >= s.Ranks {
			return fmt.Errorf("a trainer is on rank %d of %d", rank, s.Ranks)
		}
	}
	return nil
}

// event replays one event.
func (p *player) event(s *replayed, e *entry) error {
	read := unbare(e.Event)
	row := &p.Rows[s.row]
	row.Events++
	commands, note, err := s.step(read)
	if err != nil {
		return fmt.Errorf("event %d, %s: %w", row.Events, describe(read), err)
	}
	row.Commands += int64(len(commands))
	row.Epochs = len(s.epochs)
	if d := difference(texts(e.Commands), texts(commands), note); d != nil {
		d.Rank, d.Start, d.Data, d.Number = row.Rank, row.Start, row.Data, row.Events
		d.Event = describe(read)
		p.Difference = d
	}
	return nil
}

// step gives an event to the stager. note is not empty if the event itself could not be reproduced.
// It returns an error when the stager panics: the recording is damaged, or has found a bug.
func (s *replayed) step(read any) (commands []scheduler.Command, note string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the stager panics: %v", r)
		}
	}()
	event, same := s.remade(read)
	if !same {
		note = "the plan itself differs"
	}
	return s.Step(event), note, nil
}

// remade returns the event that was recorded, and whether its plan, if it has one, is the same as
// then.
func (s *replayed) remade(read any) (e scheduler.Event, same bool) {
	switch r := read.(type) {
	case planned:
		cfg := s.plans
		cfg.Processes, cfg.Layout = r.Processes, r.Layout
		if r.Placed {
			cfg.Place = func(
				*scheduler.PlanConfig, *scheduler.Draws, []float32,
			) (home, consumer []uint16) {
				return r.Home, r.Consumer
			}
		}
		plan := scheduler.NewPlan(cfg, r.Epoch, s.base)
		s.epochs[r.Epoch] = true
		return scheduler.Planned{Plan: plan, From: r.From, Probe: r.Probe}, digest(plan) == r.Digest
	case scored:
		return s.rescored(r), true
	}
	return read.(scheduler.Event), true // of another type: step turns the panic into an error
}

// rescored updates the scores, and returns the event.
func (s *replayed) rescored(r scored) scheduler.Scored {
	if r.Whole {
		s.scores, s.known = r.Values, r.Known
	} else {
		for i, id := range r.IDs {
			s.scores[id], s.known[id] = r.Values[i], r.Known[i]
		}
	}
	return scheduler.Scored{
		Epoch: r.Epoch, Batch: r.Batch, IDs: r.IDs, Scores: s.scores, Total: r.Total,
		Known: func(id scheduler.SampleID) bool { return s.known[id] == 1 },
	}
}

// Bounds of the description of a difference: commands, and bytes of each.
const (
	commandsShown = 10
	lettersShown  = 300
)

// describe describes an event for people.
func describe(event any) string {
	switch e := event.(type) {
	case planned:
		return fmt.Sprintf("Planned{Epoch:%d From:%d Digest:%016x}", e.Epoch, e.From, e.Digest)
	case scored:
		return fmt.Sprintf("Scored{Epoch:%d Batch:%d IDs:%s Total:%v}", e.Epoch, e.Batch,
			short(fmt.Sprint(e.IDs)), e.Total)
	}
	return short(text(event))
}

// text returns the complete text of an event or a command: two are equal if their texts are.
func text(v any) string { return strings.ReplaceAll(fmt.Sprintf("%T%+v", v, v), "scheduler.", "") }

// texts returns the texts of commands, as they came or as they were recorded.
func texts[C any](commands []C) []string {
	all := make([]string, len(commands))
	for i, c := range commands {
		all[i] = text(unbare(c))
	}
	return all
}

func short(text string) string {
	if len(text) <= lettersShown {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:lettersShown], ""), len(text))
}

// difference lists the commands from the first that differs, after note, which says how the event
// itself differs; nil if nothing does.
func difference(recorded, replayed []string, note string) *Difference {
	if note == "" && slices.Equal(recorded, replayed) {
		return nil
	}
	same := 0
	for same < min(len(recorded), len(replayed)) && recorded[same] == replayed[same] {
		same++
	}
	d := &Difference{Recorded: lines(recorded, same), Replayed: lines(replayed, same)}
	if note != "" {
		d.Replayed = slices.Insert(d.Replayed, 0, note)
	}
	return d
}

func lines(commands []string, same int) []string {
	var all []string
	if same > 0 {
		all = append(all, fmt.Sprintf("%d commands that are the same", same))
	}
	for i, command := range commands[same:] {
		if i == commandsShown {
			return append(all, fmt.Sprintf("%d more", len(commands)-same-i))
		}
		all = append(all, short(command))
	}
	if len(commands) == same {
		all = append(all, "no more commands")
	}
	return all
}
