package mpicache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/files"
	"rankpool/mpicache/training"
	"rankpool/scheduler/protocol"
)

// These are simulated jobs in which one thing happens that does not happen in those of
// TestJobsUnderFaults.

const happenBatches = 8 // of an epoch

// happen simulates a training of four epochs, on ranks with one trainer each, in which do happens
// after a number of global batches. Training must end with a sentence that has ends in it, or, if
// that is "", with the stream that it gets without a cache.
func happen(t *testing.T, ranks, step int, ends string, do func(j *simJob)) *simJob {
	t.Helper()
	happened := false
	j := simulateWith(uint64(step), "", false, func(c *simConfig) {
		*c = simConfig{
			ranks: ranks, perRank: 1, samples: happenBatches * simGlobalBatch, epochs: 4,
			sampler: "pads", partition: 3000, saves: true, ends: ends,
			faults: []simFault{{name: "it happens", step: step, delay: simAtOnce, do: func(j *simJob) {
				happened = true
				do(j)
			}}},
		}
	})
	if !happened || j.violation != "" || ends != "" && j.why == "" {
		t.Errorf("%d ranks, step %d: happened %v, %q; training ended with %q, want %q", ranks, step,
			happened, j.violation, j.why, ends)
	}
	return j
}

// restart ends all ranks, and lets hurt do harm to their folders before they are started again.
func (j *simJob) restart(hurt func(rank int, folder string)) {
	for _, r := range j.ranks.all {
		r.kill()
	}
	for rank, m := range j.machines {
		hurt(rank, m.folder)
	}
	j.ranks.end("killed")
}

// removeStates removes the importance states in a rank's folder, and puts what replace makes in
// their places.
func removeStates(folder string, replace func(path string) error) {
	states, err := filepath.Glob(filepath.Join(folder, "state-*"))
	for _, path := range states {
		err = errors.Join(err, os.Remove(path), replace(path))
	}
	if err != nil || len(states) == 0 {
		panic(fmt.Sprint(states, err))
	}
}

func nothing(string) error { return nil }

func fifo(path string) error { return unix.Mkfifo(path, 0o600) }

// TestLostScoresEndTraining checks that ranks that cannot know the scores make no plan, also if
// only one of them has lost them: trainers get an error at the next epoch, and until then read
// storage.
func TestLostScoresEndTraining(t *testing.T) {
	const lost = "are lost: no rank has kept them; resume from a checkpoint"
	for what, hurt := range map[string]func(rank int, folder string){
		"all":   func(_ int, folder string) { removeStates(folder, nothing) },
		"FIFOs": func(_ int, folder string) { removeStates(folder, fifo) },
		"one": func(rank int, folder string) {
			if rank == 0 {
				removeStates(folder, nothing)
			}
		},
	} {
		for _, ranks := range []int{1, 2} {
			for _, step := range []int{2*happenBatches + 3, 2 * happenBatches, 3*happenBatches - 1} {
				j := happen(t, ranks, step, lost, func(j *simJob) { j.restart(hurt) })
				if j.steps%happenBatches != 0 {
					t.Errorf("%s, %d ranks: training ended after %d batches", what, ranks, j.steps)
				}
			}
		}
	}
}

// TestFIFOsInTheFolder checks that ranks do not wait for somebody to write to a FIFO that is in
// place of one of their files.
func TestFIFOsInTheFolder(t *testing.T) {
	for _, name := range []string{"trainers", slabName} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := fifo(path); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Read(path); err == nil ||
			err.Error() != "mpicache: "+path+" is not a regular file" {
			t.Errorf("%s: %v", name, err)
		}
		forgetSlab(dir)
	}
}

// TestRanksComparePlans makes a rank make a plan from other scores than the others: no trainer gets
// it.
func TestRanksComparePlans(t *testing.T) {
	happen(t, 2, happenBatches+3,
		"ranks 0 and 1 have planned epoch 2 from different importance scores", func(j *simJob) {
			j.ranks.all[1].node.coordinating(func(c *protocol.Coordinator) {
				for id := range c.Ledger().Scores() {
					c.Ledger().Scores()[id] *= 2
				}
			})
		})
}

// TestForeignStatesEndTraining requeues a job with a state file that was damaged, or is another
// training's, or is gone.
func TestForeignStatesEndTraining(t *testing.T) {
	const refused = "training on data set train would not continue with the same batches: "
	change := func(edit func(state []byte) []byte) func(path string) error {
		return func(path string) error {
			state, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, edit(state), 0o600))
		}
	}
	type harm struct {
		ends string
		do   func(path string) error
	}
	all := map[string]harm{
		"cut off": {refused, change(func(state []byte) []byte { return state[:len(state)/2] })},
		"empty":   {refused, change(func([]byte) []byte { return nil })},
		"missing": {"importance does not exist", os.Remove},
		"another training's": {
			"belongs to another importance state than", change(func(state []byte) []byte {
				snap, err := protocol.DecodeSnapshot(state)
				if err != nil {
					t.Fatal(err)
				}
				snap.Scores[0] *= 2
				return snap.Encode()
			}),
		},
	}
	for i := range 10 {
		all[fmt.Sprint("flipped ", i)] = harm{refused, change(func(state []byte) []byte {
			state[(len(state)-1)*i/9] ^= 0x20
			return state
		})}
	}
	for what, harm := range all {
		steps := 0
		j := happen(t, 2, happenBatches+4, harm.ends, func(j *simJob) {
			path := j.statePath()
			if err := errors.Join(harm.do(path), os.RemoveAll(training.PreviousState(path))); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			j.requeue()
			steps = j.steps
		})
		if j.requeues != 1 || j.steps != steps {
			t.Errorf("%s: %d batches were trained after %d requeues", what, j.steps-steps, j.requeues)
		}
	}
}

// TestLivesOnOneCache trains, and then again on the same ranks: from a checkpoint, or from the
// beginning, although there is one.
func TestLivesOnOneCache(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		for _, anew := range []bool{false, true} {
			happen(t, ranks, 2*happenBatches+5, "", func(j *simJob) {
				from := *j.checkpoint
				var checkpoint *protocol.Checkpoint
				if checkpoint = &from; anew {
					checkpoint, from = nil, protocol.Checkpoint{}
				}
				j.uncounted = true // batches are trained twice
				for _, tr := range j.trainers {
					tr.drop()
					tr.told, tr.training = nil, protocol.Training{
						Life: j.clock.rng.Uint64(), Checkpoint: checkpoint,
					}
					tr.begin(from.Epoch, from.Batch)
				}
			})
		}
	}
}

// TestBegunAnewBeforeACheckpoint ends a training before its first checkpoint is written, and begins
// it again with its state file.
func TestBegunAnewBeforeACheckpoint(t *testing.T) {
	for _, step := range []int{5, 2*happenBatches + 3} {
		happen(t, 2, step, "", func(j *simJob) {
			j.checkpoint = nil
			j.moveOn()
		})
	}
}
