package record

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler"
)

// buffer is a file in memory.
type buffer struct {
	bytes.Buffer
	closed bool
}

func (b *buffer) Close() error {
	b.closed = true
	return nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func begin() Begin { return Begin{Version: "test", Session: "s", Rank: 0, Ranks: 2} }

const testSeed = 3

func testSetup(policy, sampler string) *Setup {
	return &Setup{
		Data: "train", Rank: 0, Ranks: 2, World: []int32{0, 1}, Policy: policy, CapacityBytes: 1000,
		WindowBytes: 2000,
		Sampler: scheduler.SamplerConfig{
			Name: sampler, Samples: 60, Seed: testSeed, BatchSize: 5, World: 2,
		},
		Size: func(id scheduler.SampleID) int64 { return 50 + int64(id%3)*10 },
	}
}

// driven is a rank whose storage and peer answer at once.
type driven struct {
	*scheduler.Stager
	tape *Tape
	// changes the commands of event n before they are recorded
	alter  func(n int, commands []scheduler.Command) []scheduler.Command
	events int
	queue  []scheduler.Event
}

// drive trains two epochs with stager, and records the events on tape. Placement and scores are
// invented.
func drive(
	t testing.TB, setup *Setup, tape *Tape,
	alter func(int, []scheduler.Command) []scheduler.Command,
) {
	plans, stager, err := setup.New()
	if err != nil {
		t.Fatal(err)
	}
	plans.Place = func(
		_ *scheduler.PlanConfig, d *scheduler.Draws, _ []float32,
	) (home, consumer []uint16) {
		home, consumer = make([]uint16, len(d.IDs)), make([]uint16, len(d.IDs))
		for i, id := range d.IDs {
			home[i], consumer[i] = uint16(id/7%2), uint16(i%2)
		}
		return home, consumer
	}
	var scores []float32
	if plans.Sampler.Weighted() {
		scores = scheduler.EqualScores(setup.Sampler.Samples, 1)
	}
	d := &driven{Stager: stager, tape: tape, alter: alter}
	for epoch := range 2 {
		if epoch > 0 {
			d.step(scheduler.Shrunk{
				CapacityBytes: setup.CapacityBytes - 1, IDs: []scheduler.SampleID{41},
			})
		}
		base := slices.Clone(scores)
		plan := scheduler.NewPlan(plans, epoch, base)
		tape.Base(base)
		d.step(scheduler.Planned{Plan: plan})
		for b := range plan.Batches() {
			d.step(
				scheduler.Requested{Trainer: 0, Epoch: epoch, Batch: b, Ticket: uint64(100*epoch + b + 1)})
			d.step(
				scheduler.Asked{
					Peer: 1, Ticket: uint32(100*epoch + b), Epoch: epoch, Batch: b,
					IDs: plan.Part(b, 1),
				})
			if scores != nil {
				d.score(plan, b, scores)
			}
		}
	}
}

// score makes up the scores of a batch.
func (d *driven) score(plan *scheduler.Plan, b int, scores []float32) {
	lo, hi := plan.Range(b)
	e := scheduler.Scored{
		Epoch: plan.Epoch, Batch: b, IDs: plan.IDs[lo:hi], Scores: scores,
		Known: func(id scheduler.SampleID) bool { return id%2 == 0 },
	}
	for i, id := range e.IDs {
		scores[id] = float32(i) + 0.5
	}
	for _, score := range scores {
		e.Total += float64(score)
	}
	d.step(e)
}

func (d *driven) step(e scheduler.Event) {
	d.queue = append(d.queue, e)
	for len(d.queue) > 0 {
		e, d.queue = d.queue[0], d.queue[1:]
		commands := slices.Clone(d.Step(e))
		d.answer(commands)
		if d.events++; d.alter != nil {
			commands = d.alter(d.events, commands)
		}
		d.tape.Step(e, commands)
	}
}

func (d *driven) answer(commands []scheduler.Command) {
	for _, c := range commands {
		switch c := c.(type) {
		case scheduler.Fetch:
			if c.ID == 11 {
				d.queue = append(d.queue, scheduler.Fetched{ID: c.ID, Err: errors.New("it is gone")})
				continue
			}
			d.queue = append(d.queue, scheduler.Fetched{ID: c.ID})
		case scheduler.Ask:
			if c.Ticket%3 == 0 {
				d.queue = append(d.queue, scheduler.PeerLost{Ticket: c.Ticket})
				continue
			}
			d.queue = append(
				d.queue, scheduler.Received{
					Ticket: c.Ticket,
					Status: slices.Repeat([]scheduler.Status{scheduler.Present}, len(c.IDs)),
				})
		case scheduler.Send:
			d.queue = append(d.queue, scheduler.Sent{Peer: c.Peer, Ticket: c.Ticket})
		case scheduler.Deliver:
			d.queue = append(d.queue, scheduler.Released{Lease: c.Lease},
				scheduler.Withdrawn{Ticket: c.Ticket}, scheduler.Room{})
		}
	}
}

// recorded returns a recording of drive; header, if not nil, is recorded instead of setup.
func recorded(
	t testing.TB, setup, header *Setup, alter func(int, []scheduler.Command) []scheduler.Command,
) []byte {
	if header == nil {
		header = setup
	}
	var b buffer
	b.WriteString(magic)
	r := newRecorder(&b, begin(), quiet(), pendingBytes)
	drive(t, setup, r.Tape(0, header), alter)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReplay(t *testing.T) {
	for _, sampler := range []string{"torch", "pads"} {
		for _, policy := range []string{"clairvoyant", "lru"} {
			result, err := Replay(bytes.NewReader(recorded(t, testSetup(policy, sampler), nil, nil)))
			if err != nil || result.Difference != nil {
				t.Fatalf("%s, %s: %+v, %v", sampler, policy, result.Difference, err)
			}
			row := result.Rows[0]
			if len(result.Rows) != 1 || row.Epochs != 2 || row.Events < 100 || row.Commands < 60 ||
				row.Start != 1 || row.Data != "train" {
				t.Errorf("%s, %s: %+v", sampler, policy, result.Rows)
			}
			if len(result.Lives) != 1 || !result.Lives[0].Ended ||
				result.Lives[0].Begin != begin() {
				t.Errorf("%s, %s: %+v", sampler, policy, result.Lives)
			}
		}
	}
}

// TestReplayOfAnEpochLeftEarly checks that what a trainer leaves behind is dropped in the same
// order.
func TestReplayOfAnEpochLeftEarly(t *testing.T) {
	setup := testSetup("lru", "torch")
	setup.Ranks, setup.World, setup.CapacityBytes, setup.WindowBytes = 1, []int32{0}, 0, 10000
	// so that the window has several batches
	setup.Sampler.World, setup.Sampler.Samples, setup.Sampler.BatchSize = 1, 200, 1
	plans, stager, err := setup.New()
	if err != nil {
		t.Fatal(err)
	}
	var b buffer
	b.WriteString(magic)
	r := newRecorder(&b, begin(), quiet(), pendingBytes)
	d := &driven{Stager: stager, tape: r.Tape(0, setup)}
	for epoch := range 2 {
		d.step(scheduler.Planned{Plan: scheduler.NewPlan(plans, epoch, nil)})
	}
	d.step(scheduler.Requested{Ticket: 1})
	d.step(scheduler.Requested{Ticket: 2, Epoch: 1})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for range 20 { // a map's order shows in one replay of many
		result, err := Replay(bytes.NewReader(b.Bytes()))
		if err != nil || result.Difference != nil {
			t.Fatalf("%+v, %v", result.Difference, err)
		}
	}
}

// TestReplayNoticesACommand checks that a replay finds the one command that is not the stager's.
func TestReplayNoticesACommand(t *testing.T) {
	at := 0
	alter := func(n int, commands []scheduler.Command) []scheduler.Command {
		for i, c := range commands {
			if f, is := c.(scheduler.Fetch); is && n > 50 && at == 0 {
				at = n
				f.ID++
				commands[i] = f
			}
		}
		return commands
	}
	result, err := Replay(bytes.NewReader(recorded(t, testSetup("clairvoyant", "pads"), nil, alter)))
	if err != nil || result.Difference == nil || at == 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	d := result.Difference
	if d.Number != int64(at) || len(d.Recorded) == 0 || len(d.Replayed) == 0 ||
		slices.Equal(d.Recorded, d.Replayed) {
		t.Errorf("event %d was altered: %+v", at, *d)
	}
}

// TestReplayNoticesAnotherScheduler checks that another policy, seed or capacity does not go
// unnoticed. Who consumes a draw is recorded where samples are placed.
func TestReplayNoticesAnotherScheduler(t *testing.T) {
	for name, change := range map[string]func(*Setup){
		"policy":   func(s *Setup) { s.Policy = "lru" },
		"seed":     func(s *Setup) { s.Sampler.Seed++ },
		"capacity": func(s *Setup) { s.CapacityBytes -= 300 },
		"window":   func(s *Setup) { s.WindowBytes /= 4 },
		"size":     func(s *Setup) { s.Size = func(scheduler.SampleID) int64 { return 90 } },
	} {
		header := testSetup("clairvoyant", "pads")
		change(header)
		result, err := Replay(bytes.NewReader(recorded(t, testSetup("clairvoyant", "pads"), header, nil)))
		if err != nil || result.Difference == nil {
			t.Errorf("%s: %+v, %v", name, result, err)
			continue
		}
		plan := strings.HasPrefix(result.Difference.Event, "Planned") &&
			strings.Contains(result.Difference.Replayed[0], "the plan itself differs")
		if name == "seed" != plan {
			t.Errorf("%s: %+v", name, *result.Difference)
		}
	}
}

// TestReplayOfABeginning checks that whatever a kill leaves of a file is replayed without an error,
// and is a beginning.
func TestReplayOfABeginning(t *testing.T) {
	var b buffer
	b.WriteString(magic)
	chunked := func(records []byte) { // one chunk per add, as a slow rank writes them
		zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		appendChunk(&b.Buffer, zip, records)
	}
	c := chunks{r: bytes.NewReader(recorded(t, testSetup("clairvoyant", "pads"), nil, nil))}
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	records, err := c.next()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries(t, records) {
		var one bytes.Buffer
		if err := gob.NewEncoder(&one).Encode(e); err != nil {
			t.Fatal(err)
		}
		chunked(one.Bytes())
	}
	whole := b.Bytes()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, len(whole)-1).Draw(t, "bytes")
		result, err := Replay(bytes.NewReader(whole[:n]))
		first := len(magic) + 4 + int(binary.LittleEndian.Uint32(whole[len(magic):]))
		if (err != nil) != (n < first) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if result.Difference != nil || len(result.Lives) > 0 && result.Lives[0].Ended {
			t.Fatalf("%d bytes: %+v", n, result)
		}
	})
}

// entries returns the entries of a chunk.
func entries(t testing.TB, stream []byte) []entry {
	var all []entry
	for d := gob.NewDecoder(bytes.NewReader(stream)); ; {
		var e entry
		err := d.Decode(&e)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

func TestReplayOfDamage(t *testing.T) {
	whole := recorded(t, testSetup("clairvoyant", "torch"), nil, nil)
	flipped := slices.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for _, c := range []struct {
		name, want string
		file       []byte
	}{
		{"empty", "it is not a recording of rankpool", nil},
		{"text", "it is not a recording of rankpool", []byte("import torch\n\nprint('not a recording')")},
		{"format", `it is a recording of another format, "rankpool recording 2", and this rankpool reads "rankpool recording 3": replay it with`, []byte("rankpool recording 2\n")},
		{"headless", "nothing was recorded", []byte(magic)},
		{"flipped", "is damaged", flipped},
	} {
		if _, err := Replay(bytes.NewReader(c.file)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// slow is a file that accepts nothing until it may.
type slow struct {
	buffer
	may chan struct{}
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.may
	return s.buffer.Write(p)
}

// TestSlowStorage checks that the rank continues when storage cannot keep up with the recording,
// and that the recording notes the gap.
func TestSlowStorage(t *testing.T) {
	s := &slow{may: make(chan struct{})}
	s.WriteString(magic)
	var log bytes.Buffer
	r := newRecorder(s, begin(), slog.New(slog.NewTextHandler(&log, nil)), 3000)
	drive(t, testSetup("clairvoyant", "pads"), r.Tape(0, testSetup("clairvoyant", "pads")), nil)
	if n := strings.Count(log.String(), "the recording ends here, training continues"); n != 1 {
		t.Errorf("logged %d times: %s", n, &log)
	}
	close(s.may)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	result, err := Replay(bytes.NewReader(s.Bytes()))
	if err != nil || result.Difference != nil || !result.Lives[0].Ended ||
		result.Lives[0].Why != "storage takes it more slowly than it comes" {
		t.Errorf("%+v, %v", result, err)
	}
	if !s.closed {
		t.Error("the file is left open")
	}
}

// full is a file that accepts no more than n bytes.
type full struct {
	buffer
	n int
}

func (f *full) Write(p []byte) (int, error) {
	if f.n < len(p) {
		n, _ := f.buffer.Write(p[:f.n])
		f.n = 0
		return n, errors.New("no space left")
	}
	f.n -= len(p)
	return f.buffer.Write(p)
}

func TestFullStorage(t *testing.T) {
	var log bytes.Buffer
	f := &full{n: 300}
	f.WriteString(magic)
	r := newRecorder(f, begin(), slog.New(slog.NewTextHandler(&log, nil)), pendingBytes)
	drive(t, testSetup("lru", "torch"), r.Tape(0, testSetup("lru", "torch")), nil)
	r.kick()
	<-r.done
	tape := r.Tape(1, testSetup("lru", "torch"))
	tape.Step(scheduler.Room{}, nil) // nothing happens
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "it cannot be written: no space left") || !f.closed {
		t.Errorf("logged %s", &log)
	}
}

// TestNothingIsRecorded checks that a nil tape may be used.
func TestNothingIsRecorded(t *testing.T) {
	var r *Recorder
	tape := r.Tape(0, testSetup("lru", "torch"))
	tape.Base([]float32{1})
	drive(t, testSetup("lru", "torch"), tape, nil)
	if tape != nil {
		t.Error("there is a tape without a recorder")
	}
}

// TestEntries checks that events and commands, of all types, are read as they were written.
func TestEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint32()
		id := scheduler.SampleID(number.Draw(t, "id"))
		ids := rapid.SliceOf(
			rapid.Custom(
				func(t *rapid.T) scheduler.SampleID {
					return scheduler.SampleID(number.Draw(t, "id"))
				})).Draw(t, "ids")
		failed := errors.New(rapid.String().Draw(t, "error"))
		big, small := rapid.Uint64().Draw(t, "big"), rapid.Int().Draw(t, "small")
		want := []any{
			scheduler.Requested{Trainer: small, Epoch: 1, Ticket: big},
			scheduler.Withdrawn{Ticket: big},
			scheduler.Released{Lease: 1},
			scheduler.Fetched{ID: id, Err: failed},
			scheduler.Fetched{ID: id},
			scheduler.Starved{ID: id},
			scheduler.Room{},
			scheduler.Received{Ticket: 7, Status: []scheduler.Status{scheduler.Present}},
			scheduler.PeerLost{Ticket: 7},
			scheduler.Asked{Peer: 1, Ticket: 7, Epoch: small, IDs: ids},
			scheduler.Sent{Peer: 1},
			scheduler.Ended{},
			scheduler.Stored{ID: id, Busy: true, Err: failed},
			scheduler.Recalled{ID: id, Err: failed},
			scheduler.Recovered{IDs: ids},
			scheduler.Checked{ID: id, Whole: true},
			scheduler.Check{ID: id, Need: big},
			scheduler.Shrunk{CapacityBytes: 1 << 40, IDs: ids},
			scheduler.Fetch{ID: id, Need: big},
			scheduler.Ask{Peer: small, Batch: 3, IDs: ids},
			scheduler.Free{ID: 4},
			scheduler.Send{Peer: 1, Ticket: 2, IDs: ids, Status: []scheduler.Status{scheduler.Staged}},
			scheduler.Deliver{
				Ticket: big, IDs: ids, Source: []scheduler.Source{scheduler.Unreadable},
				Errs: map[int]error{0: failed, 4: errors.New("b")},
			},
			scheduler.Store{ID: id},
			scheduler.Recall{ID: id, Need: big},
			scheduler.Erase{ID: id},
			scheduler.EndTier{},
		}
		var written entry
		for _, v := range want {
			written.Commands = append(written.Commands, portable(v, false))
		}
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(written); err != nil {
			t.Fatal(err)
		}
		short := b.Bytes()[:rapid.IntRange(0, b.Len()-1).Draw(t, "cut")]
		var read entry
		if err := gob.NewDecoder(&b).Decode(&read); err != nil {
			t.Fatal(err)
		}
		if got, want := texts(read.Commands), texts(want); !slices.Equal(got, want) {
			t.Fatalf("%q became %q", want, got)
		}
		if err := gob.NewDecoder(bytes.NewReader(short)).Decode(&read); err == nil {
			t.Fatal("an entry that is cut off was read")
		}
	})
}

// FuzzReplay replays records that no rank wrote.
func FuzzReplay(f *testing.F) {
	for _, recording := range [][]byte{
		recorded(f, testSetup("clairvoyant", "torch"), nil, nil),
		recorded(f, testSetup("clairvoyant", "pads"), nil, nil),
		decided(f, testSeed, nil),
	} {
		c := chunks{r: bytes.NewReader(recording)}
		if err := c.open(); err != nil {
			f.Fatal(err)
		}
		records, err := c.next()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(slices.Clone(records))
	}
	f.Fuzz(func(t *testing.T, records []byte) {
		var b bytes.Buffer
		b.WriteString(magic)
		zip, err := gzip.NewWriterLevel(nil, gzip.NoCompression)
		if err != nil {
			t.Fatal(err)
		}
		appendChunk(&b, zip, records)
		result, err := replay(&b, 1000)
		if err == nil && len(result.Lives) == 0 {
			t.Error("a recording without a beginning is accepted")
		}
	})
}
