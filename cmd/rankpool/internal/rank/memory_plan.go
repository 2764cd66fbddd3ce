package rank

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/mpicache"
)

// planMemory settles how this rank divides its memory among the data sets, whose PartitionBytes and WindowBytes it sets. All ranks must
// call it: they tell each other the sizes of their slabs, for which it puts another transport into cfg. Where one rank has too little
// Memory all end, and one sentence says why.
func (r *process) planMemory(ctx context.Context, cfg *mpicache.Config) (memory.Plan, error) {
	own, reason := r.ownMemory(ctx, cfg.Data)
	var tooMuch *memory.TooSmallError
	if errors.As(reason, &tooMuch) {
		own.slabBytes = -1
	} else if reason != nil {
		return own.plan, reason
	}
	slabs, err := r.gatherSlabs(ctx, cfg, own.slabBytes)
	if err != nil {
		return own.plan, err
	}
	if first := slices.IndexFunc(slabs, func(bytes int64) bool { return bytes < 0 }); first >= 0 {
		_ = r.transport.Close() // what this rank has told the others leaves before it ends
		if first == r.transport.Rank() {
			return own.plan, errors.New(tooMuch.Sentence)
		}
		return own.plan, &exit.StatusError{Code: exit.Failure}
	}
	if slices.Max(slabs) > 0 {
		if own.plan, err = r.opt.asks().Divide(cfg.Data, slabs, r.transport.Rank(), r.transport.Size()); err != nil {
			return own.plan, err
		}
	}
	r.sayAuto(own.auto, own.plan.SlabBytes)
	r.noted = memoryNote{own.plan.SlabBytes, own.asked}
	return own.plan, r.noted.write(r.dir)
}

// An ownPlan is a rank's plan before it knows those of the others.
type ownPlan struct {
	plan      memory.Plan      // not settled where the others are told a size
	auto      *memory.AutoPlan // nil: the user gave a size
	asked     string           // what the plan came of
	slabBytes int64            // what the others are told: the slab has this size, 0: that which --memory says, -1: the node has too little
}

// ownMemory returns this rank's plan. The error is a memoryError where the node has too little memory.
func (r *process) ownMemory(ctx context.Context, data []mpicache.DataSet) (own ownPlan, err error) {
	if r.opt.Memory == memory.Auto {
		return r.autoMemory(ctx)
	}
	if own.plan, err = r.opt.asks().Divide(data, nil, r.transport.Rank(), r.transport.Size()); err != nil {
		return own, err
	}
	planned := own.plan.SlabBytes
	own.asked = fmt.Sprintf("of %d", planned)
	before, again := r.slabBefore(own.asked)
	if !again {
		return own, own.plan.Check(r.ranksHere)
	}
	if slab, err := r.slabAgain(ctx, min(before, planned)); err != nil || slab < planned {
		own.slabBytes = slab
		return own, err
	}
	return own, nil
}

// autoMemory is ownMemory where the rank chooses the size of its slab.
func (r *process) autoMemory(ctx context.Context) (own ownPlan, err error) {
	if own.auto, err = memory.NewAutoPlan(r.opt.Trainers, memory.Available(), r.ranksHere, os.Getenv); err != nil {
		return own, err
	}
	own.asked = fmt.Sprintf("for %d trainers and %d ranks", own.auto.Trainers, own.auto.RanksHere)
	if before, again := r.slabBefore(own.asked); again {
		own.slabBytes, err = r.slabAgain(ctx, before)
		if own.auto.Before = before; own.slabBytes < before {
			own.auto = nil // it was said why
		}
		return own, err
	}
	if own.slabBytes = own.auto.SlabBytes(); own.slabBytes <= 0 {
		err = &memory.TooSmallError{Sentence: fmt.Sprintf(
			"--memory auto: %s: ask for more memory (--mem of Slurm), or say with --trainer-memory that the trainers need less", own.auto)}
	}
	return own, err
}

// gatherInterval paces what is said while this rank waits for the others, which may have to read a large index first.
const gatherInterval = 30 * time.Second

// gatherSlabs returns the sizes of all ranks' slabs. It returns an error when the ranks were not all started for the same run.
func (r *process) gatherSlabs(ctx context.Context, cfg *mpicache.Config, own int64) ([]int64, error) {
	tick := time.NewTicker(gatherInterval)
	defer tick.Stop()
	g := newGather(r.transport)
	r.transport, cfg.Transport = g, g
	round := func(note any) ([][]byte, error) { return g.gather(ctx, encodeNote(note), tick.C, r.logger) }
	return r.compare(r.intro(cfg, own), round)
}

// sayAuto says how this rank's slab got its size.
func (r *process) sayAuto(auto *memory.AutoPlan, slabBytes int64) {
	switch {
	case auto == nil:
	case auto.Before > 0:
		r.logger.Info("memory auto: as before this rank was started again", "slab", memory.Text(slabBytes))
	default:
		text := auto.String()
		if slabBytes < auto.SlabBytes() {
			text += ", of which the data needs " + memory.Text(slabBytes)
		}
		if r.transport.Rank() == 0 {
			notice(r.logger, "memory auto: "+text)
		} else {
			r.logger.Info("memory auto: " + text)
		}
	}
}
