package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"rankpool/mpicache"
	"rankpool/mpicache/door"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

var saveSection = section{
	name: "save",
	about: "one rank in a process, one trainer, batches of 64, pads: a worker takes " +
		"batches one after " +
		"the other, one a millisecond, while the trainer saves a checkpoint, which writes its " +
		"importance " +
		"scores and the epoch's losses to a file in the system's folder for temporary files, " +
		"and for as " +
		"long without; in turns, nine rounds, the median of each round's longest GET.",
	measure: ratios((*bench).save),
}

// saveResult is what saveChild measures, in seconds, one per round.
type saveResult struct {
	Saving, Without []float64 // the longest GET
	Saves           []float64 // from SAVE to its reply
	Bytes           int64     // of the state file
}

func (b *bench) save() ([]row, error) {
	samples, title := 14_200_000, "14.2 M scores"
	if b.quick {
		samples, title = 142_000, "142,000 scores"
	}
	var r saveResult
	if err := inChild(nil, &r, "save", strconv.Itoa(samples)); err != nil {
		return nil, err
	}
	ms := func(seconds float64) string { return fmt.Sprintf("%.1f ms", 1000*seconds) }
	saving, without := median(r.Saving), median(r.Without)
	return []row{
		ratioRow("longest GET while "+title+" are saved / without a save", ms(saving), ms(without),
			saving/without, atMost, 2),
		{
			what: "the save, and what it writes",
			ours: fmt.Sprintf("%.2f s, %d MB", median(r.Saves), r.Bytes/1e6),
		},
	}, nil
}

const (
	saveBatch  = 64
	saveRounds = 9
)

// instant is storage that has every sample at once.
type instant struct{}

func (instant) Fetch(_ draw.SampleID, _ []byte, _ uint64, done func(error)) { go done(nil) }
func (instant) Demand(uint64)                                               {}

// saver is a trainer that saves, and one of its workers, which gets batches.
type saver struct {
	trainer, worker *door.Client
	batch           int      // that the worker gets next
	leases          []uint32 // that it holds
}

func saveChild(args []string) (any, error) {
	samples, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rankpool-save-")
	if err != nil {
		return nil, err
	}
	defer remove(dir)
	state := filepath.Join(dir, "state")
	node, err := mpicache.NewNode(saveNode(dir, state, samples))
	if err != nil {
		return nil, err
	}
	s, err := newSaver(filepath.Join(dir, "door.sock"))
	if err != nil {
		return nil, err
	}
	var r saveResult
	for round := range saveRounds {
		seconds, longest, err := s.round(&r, 1+round)
		if err != nil {
			return nil, err
		}
		r.Saves, r.Saving = append(r.Saves, seconds), append(r.Saving, longest)
	}
	info, err := os.Stat(state)
	if err != nil {
		return nil, err
	}
	r.Bytes = info.Size()
	return r, errors.Join(s.trainer.Close(), s.worker.Close(), node.Close())
}

func saveNode(dir, state string, samples int) mpicache.Config {
	return mpicache.Config{
		Transport: transport.NewLocal(1)[0], Policy: "clairvoyant", PeerTimeout: time.Second,
		Watch: ranks.NewWatch(transport.NewLocal(1)[0], ranks.WatchOptions{Bound: time.Hour}),
		Dir:   dir, StatePath: state, SlabBytes: 64 << 20, Log: slog.New(slog.DiscardHandler),
		Record: func(any) {}, NodeEvery: time.Hour,
		Data: []mpicache.DataSet{{
			Name: "train", Samples: samples, Storage: instant{},
			Size:           func(draw.SampleID) int64 { return 1 },
			Label:          func(draw.SampleID) int { return 0 },
			PartitionBytes: []int64{1 << 20}, WindowBytes: 32 << 20,
		}},
	}
}

func newSaver(path string) (*saver, error) {
	s := &saver{}
	spec := protocol.Spec{
		Data: "train", Sampler: "pads", BatchSize: saveBatch, World: 1,
		Training: &protocol.Training{Life: 1},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	for i, client := range []**door.Client{&s.trainer, &s.worker} {
		if *client, err = door.Dial(path, door.NewHello(0, 1, uint64(i)), 0); err == nil {
			_, err = (*client).Call(door.KindOpen, text)
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = s.trainer.Call(door.KindPlan, words(0, 0, 0))
	return s, err
}

// round reports a batch, saves before batch at while it gets batches, and then gets batches for as
// long as the save took.
func (s *saver) round(r *saveResult, at int) (seconds, longest float64, err error) {
	report := words(0, 0, uint32(at-1), saveBatch)
	for i := range saveBatch {
		report = binary.LittleEndian.AppendUint32(report, math.Float32bits(1+float32(i)))
	}
	if err := s.trainer.Send(door.KindReport, report); err != nil {
		return 0, 0, err
	}
	if _, err := s.take(100 * time.Millisecond); err != nil { // until what came before has settled
		return 0, 0, err
	}
	saved := make(chan error, 1)
	begin := time.Now()
	go func() {
		_, err := s.trainer.Call(door.KindSave, words(0, 0, uint32(at)))
		saved <- err
	}()
	for done := false; !done && err == nil; {
		select {
		case err = <-saved:
			done = true
		default:
			var one float64
			one, err = s.get()
			longest = max(longest, one)
		}
	}
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(begin)
	without, err := s.take(took)
	r.Without = append(r.Without, without)
	return took.Seconds(), longest, err
}

// take gets batches for a while and returns the longest GET, in seconds.
func (s *saver) take(d time.Duration) (longest float64, err error) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		one, err := s.get()
		if err != nil {
			return 0, err
		}
		longest = max(longest, one)
	}
	return longest, nil
}

// get gets the next batch, releases the one before, and returns how long that took.
func (s *saver) get() (seconds float64, err error) {
	time.Sleep(time.Millisecond)
	payload := words(append([]uint32{0, 0, uint32(s.batch), uint32(len(s.leases))}, s.leases...)...)
	payload = door.Tally{}.Append(payload)
	begin := time.Now()
	reply, err := s.worker.Call(door.KindGet, payload)
	seconds = time.Since(begin).Seconds()
	if err != nil {
		return 0, fmt.Errorf("batch %d: %w", s.batch, err)
	}
	s.leases = slices.Clone([]uint32{binary.LittleEndian.Uint32(reply)})
	s.batch++
	return seconds, nil
}

// words encodes numbers as the door expects them.
func words(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}
