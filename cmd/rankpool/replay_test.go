package main

import (
	"log/slog"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"rankpool/cmd/rankpool/internal/version"
	"rankpool/mpicache/record"
	"rankpool/scheduler"
)

// writeRecording is the script command "recording FILE RANK RANKS SESSION [EVENT]". It records what
// a rank decides that requests an epoch from itself; with EVENT, it adds a command that no stager
// gives to that event.
func writeRecording(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: recording FILE RANK RANKS SESSION [EVENT]")
	}
	rank, err := strconv.Atoi(args[1])
	ts.Check(err)
	ranks, err := strconv.Atoi(args[2])
	ts.Check(err)
	wrong := 0
	if len(args) > 4 {
		wrong, err = strconv.Atoi(args[4])
		ts.Check(err)
	}
	r, err := record.Create(ts.MkAbs(args[0]),
		record.Begin{Version: version.Text, Session: args[3], Rank: rank, Ranks: ranks},
		slog.New(slog.DiscardHandler))
	ts.Check(err)
	setup := &record.Setup{
		Data: "train", Rank: rank, Ranks: ranks, World: []int32{int32(rank)}, Policy: "lru",
		CapacityBytes: 1000, WindowBytes: 1000,
		Sampler: scheduler.SamplerConfig{Name: "sequential", Samples: 20, BatchSize: 10, World: 1},
		Size:    func(scheduler.SampleID) int64 { return 100 },
	}
	plans, stager, err := setup.New()
	ts.Check(err)
	tape := r.Tape(0, setup)
	for i, e := range []scheduler.Event{
		scheduler.Planned{Plan: scheduler.NewPlan(plans, 0, nil)},
		scheduler.Requested{Ticket: 1},
		scheduler.Room{},
		scheduler.Fetched{ID: 1},
	} {
		commands := stager.Step(e)
		if i+1 == wrong {
			commands = append(commands, scheduler.Free{ID: 19})
		}
		tape.Step(e, commands)
	}
	ts.Check(r.Close())
}
