package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rankpool/mpicache"
)

// planMemory settles how this rank divides its memory among the data sets, whose PartitionBytes and WindowBytes it sets. All ranks must
// call it: they tell each other the sizes of their slabs, for which it puts another transport into cfg. Where one rank has too little
// memory all end, and one sentence says why.
func (r *rankProcess) planMemory(ctx context.Context, cfg *mpicache.Config) (memoryPlan, error) {
	plan, auto, reason := r.ownMemory(cfg.Data)
	var tooMuch *memoryError
	if reason != nil && !errors.As(reason, &tooMuch) {
		return plan, reason
	}
	own := plan.slabBytes
	if reason != nil {
		own = -1
	}
	slabs, err := r.gatherSlabs(ctx, cfg, own)
	if err != nil {
		return plan, err
	}
	if first := slices.IndexFunc(slabs, func(bytes int64) bool { return bytes < 0 }); first >= 0 {
		_ = r.transport.Close() // what this rank has told the others leaves before it ends
		if first == r.transport.Rank() {
			return plan, errors.New(tooMuch.sentence)
		}
		return plan, &statusError{code: exitError}
	}
	if auto != nil {
		if plan, err = r.opt.divide(cfg.Data, slabs, r.transport.Rank(), r.transport.Size()); err != nil {
			return plan, err
		}
	}
	r.sayAuto(auto, plan.slabBytes)
	return plan, os.WriteFile(filepath.Join(r.dir, memoryName), memoryNote(plan.slabBytes, auto), 0o600)
}

// ownMemory returns this rank's plan, of which only slabBytes is settled where the size is automatic, and how it came about. The error is a
// memoryError where the node has too little memory.
func (r *rankProcess) ownMemory(data []mpicache.DataSet) (memoryPlan, *autoPlan, error) {
	if r.opt.memory == autoMemory {
		auto, err := newAutoPlan(r.opt.trainers, memoryAvailable(), r.ranksHere, os.Getenv)
		if err != nil {
			return memoryPlan{}, nil, err
		}
		if before, again := r.memoryBefore(auto); again {
			auto.before = before
		} else if auto.slabBytes() <= 0 {
			err = &memoryError{fmt.Sprintf(
				"--memory auto: %s: ask for more memory (--mem of Slurm), or say with --trainer-memory that the trainers need less", auto)}
		}
		return memoryPlan{slabBytes: auto.slabBytes()}, auto, err
	}
	memory, err := parseMemory(r.opt.memory)
	if err != nil {
		return memoryPlan{}, nil, err
	}
	var slabs []int64
	if !memory.isShare {
		slabs = slices.Repeat([]int64{memory.bytes}, r.transport.Size())
	}
	plan, err := r.opt.divide(data, slabs, r.transport.Rank(), r.transport.Size())
	if err != nil {
		return plan, nil, err
	}
	if before, again := r.memoryBefore(nil); again && before == plan.slabBytes {
		return plan, nil, nil
	}
	return plan, nil, plan.check(r.ranksHere)
}

// gatherInterval paces what is said while this rank waits for the others, which may have to read a large index first.
const gatherInterval = 30 * time.Second

// gatherSlabs returns the sizes of all ranks' slabs.
func (r *rankProcess) gatherSlabs(ctx context.Context, cfg *mpicache.Config, own int64) ([]int64, error) {
	tick := time.NewTicker(gatherInterval)
	defer tick.Stop()
	transport, slabs, err := gather(ctx, r.transport, own, tick.C, r.logger)
	if err == nil {
		r.transport, cfg.Transport = transport, transport
	}
	return slabs, err
}

// sayAuto says how this rank's slab got its size.
func (r *rankProcess) sayAuto(auto *autoPlan, slabBytes int64) {
	switch {
	case auto == nil:
	case auto.before > 0:
		r.logger.Info("memory auto: as before this rank was started again", "slab", size(slabBytes))
	default:
		text := auto.String()
		if slabBytes < auto.slabBytes() {
			text += ", of which the data needs " + size(slabBytes)
		}
		if r.transport.Rank() == 0 {
			fmt.Fprintln(os.Stderr, "rankpool: memory auto:", text)
		} else {
			r.logger.Info("memory auto: " + text)
		}
	}
}

// memoryName is a file in the rank's folder that has the size of its slab, for the rank that is started again under running training: what
// is free then says nothing, since trainers still map the memory of the one before.
const memoryName = "memory"

func memoryNote(slabBytes int64, auto *autoPlan) []byte {
	if auto == nil {
		return fmt.Appendf(nil, "%d", slabBytes)
	}
	return fmt.Appendf(nil, "%d of %d, %d trainers, %d ranks", slabBytes, auto.memory.LimitBytes, auto.trainers, auto.ranksHere)
}

// memoryBefore returns the size that this rank's slab had before the rank was started again, with what was the same then.
func (r *rankProcess) memoryBefore(auto *autoPlan) (slabBytes int64, found bool) {
	note, err := os.ReadFile(filepath.Join(r.dir, memoryName))
	if err != nil {
		return 0, false
	}
	if _, err := fmt.Sscan(string(note), &slabBytes); err != nil || string(note) != string(memoryNote(slabBytes, auto)) {
		return 0, false
	}
	return slabBytes, true
}
