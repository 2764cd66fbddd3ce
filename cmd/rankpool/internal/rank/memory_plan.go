package rank

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/mpicache"
	"rankpool/mpicache/transport/ranks"
)

// planMemory decides how this rank divides its memory among the data sets, and sets their
// PartitionBytes and WindowBytes. All ranks must call it: they exchange the sizes of their slabs.
// If one rank has too little memory, all end, with one sentence that says why.
func (r *process) planMemory(ctx context.Context, cfg *mpicache.Config) (memory.Plan, error) {
	own, reason := r.memory.plan(ctx, cfg.Data)
	var tooMuch *memory.TooSmallError
	if errors.As(reason, &tooMuch) {
		own.slabBytes = -1
	} else if reason != nil {
		return own.plan, reason
	}
	slabs, err := r.compare(ctx, r.intro(own.slabBytes))
	if err != nil {
		return own.plan, err
	}
	if first := slices.IndexFunc(slabs, func(bytes int64) bool { return bytes < 0 }); first >= 0 {
		_ = r.transport.Close() // sends pending messages to the others
		if first == r.transport.Rank() {
			return own.plan, errors.New(tooMuch.Sentence)
		}
		return own.plan, &exit.StatusError{Code: exit.Failure}
	}
	if slices.Max(slabs) > 0 {
		if own.plan, err = r.opt.asks().Divide(cfg.Data, slabs, r.transport.Rank(),
			r.transport.Size()); err != nil {
			return own.plan, err
		}
	}
	r.memory.logAuto(own.auto, own.plan.SlabBytes)
	r.memory.noted = own.plan.SlabBytes
	return own.plan, noteMemory(r.folder.dir, r.memory.noted)
}

// An ownPlan is a rank's plan before it knows those of the other ranks.
type ownPlan struct {
	plan memory.Plan      // not final if slabBytes is not 0
	auto *memory.AutoPlan // nil: the user gave a size
	// what the others receive: the size of the slab; 0: the size that --memory gives; -1: the node has
	// too little memory
	slabBytes int64
}

// plan returns this rank's plan. The error is a *memory.TooSmallError if the node has too
// little memory.
func (m *memoryUse) plan(ctx context.Context, data []mpicache.DataSet) (own ownPlan, err error) {
	if m.opt.Memory == memory.Auto {
		return m.planAuto(ctx, data)
	}
	if own.plan, err = m.opt.asks().Divide(data, nil, m.rank,
		m.ranks); err != nil {
		return own, err
	}
	planned := own.plan.SlabBytes
	before, again := m.slabBefore()
	if !again {
		return own, own.plan.Check(m.ranksHere)
	}
	slab := min(before, planned)
	if !m.takeBack(ctx, data) {
		slab, err = m.slabAgain(ctx, slab)
	}
	if err != nil || slab < planned {
		own.slabBytes = slab
		return own, err
	}
	return own, nil
}

// planAuto is plan for --memory auto.
func (m *memoryUse) planAuto(
	ctx context.Context, data []mpicache.DataSet,
) (own ownPlan, err error) {
	if own.auto, err = memory.NewAutoPlan(m.opt.Trainers, memory.Available(), m.ranksHere,
		os.Getenv); err != nil {
		return own, err
	}
	if before, again := m.slabBefore(); again {
		if own.slabBytes = before; !m.takeBack(ctx, data) {
			own.slabBytes, err = m.slabAgain(ctx, before)
		}
		if own.auto.Before = before; own.slabBytes < before {
			own.auto = nil // the reason was reported
		}
		return own, err
	}
	if own.slabBytes = own.auto.SlabBytes(); own.slabBytes <= 0 {
		err = &memory.TooSmallError{Sentence: fmt.Sprintf(
			"--memory auto: %s: ask for more memory (--mem of Slurm), or lower "+
				"--tune trainer-memory", own.auto)}
	}
	return own, err
}

// gatherInterval is the pause between log lines while this rank waits for the others, which may
// have to read a large index first.
const gatherInterval = 30 * time.Second

// exchange sends note to all ranks, and returns the notes of all by rank. It waits for them until
// ctx ends, and logs that it waits: the launcher notices if a rank dies, and ends the others.
func exchange[T any](ctx context.Context, r *process, channel byte, note T) ([]T, error) {
	var there atomic.Int64
	ctx, done := context.WithCancelCause(ctx)
	defer done(nil)
	go func() {
		tick := time.NewTicker(gatherInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.logger.Warn("waiting for the other ranks to begin", "there", there.Load(), "of",
					r.transport.Size())
			case <-ctx.Done():
				return
			}
		}
	}()
	notes, err := ranks.Exchange(ctx, r.transport, channel, note,
		func(n int) { there.Store(int64(n)) })
	if other := (*ranks.VersionError)(nil); err != nil && !errors.As(err, &other) {
		err = fmt.Errorf("waiting for the other ranks: %w", err)
	}
	return notes, err
}

// logAuto logs how this rank's slab got its size.
func (m *memoryUse) logAuto(auto *memory.AutoPlan, slabBytes int64) {
	switch {
	case auto == nil:
	case auto.Before > 0:
		m.logger.Info("memory auto: as before this rank was restarted", "slab",
			memory.Text(slabBytes))
	default:
		text := auto.String()
		if slabBytes < auto.SlabBytes() {
			text += ", of which the data needs " + memory.Text(slabBytes)
		}
		m.logger.Info("memory auto: " + text)
	}
}
