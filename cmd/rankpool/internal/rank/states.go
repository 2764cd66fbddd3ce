package rank

import (
	"context"
	"maps"
	"path/filepath"
	"slices"

	"rankpool/mpicache"
)

// Ranks that are restarted resume from the importance states in their folders. If such a folder was
// cleared, the trainers of its node put the states back. If there are no trainers, another rank
// sends them.

// A statesNote holds the importance states that a rank sends: the content of files, by name.
type statesNote struct{ Files map[string][]byte }

// completeStates writes the importance states of trainings of which other ranks have some and this
// one has none. Either all ranks take part or none, as the intros show.
func (r *process) completeStates(ctx context.Context, intros []intro) error {
	senders := stateSenders(intros)
	if len(senders) == 0 {
		return nil
	}
	own, note := intros[r.transport.Rank()].States, statesNote{map[string][]byte{}}
	for _, name := range own {
		if senders[mpicache.TrainingOfState(name)] != r.transport.Rank() {
			continue
		}
		text, err := mpicache.ReadFile(filepath.Join(r.dir, name))
		if err == nil { // it may be gone
			note.Files[name] = text
		}
	}
	notes, err := exchange(ctx, r, channelStates, note)
	if err != nil {
		return err
	}
	for _, other := range notes {
		for name, text := range other.Files {
			if hasStateOf(own, mpicache.TrainingOfState(name)) {
				continue
			}
			if err := mpicache.WriteFile(filepath.Join(r.dir, name), text); err != nil {
				r.logger.Warn("an importance state that another rank has is not kept", "error", err)
			}
		}
	}
	return nil
}

// stateSenders returns the first rank that has states of a training, for each training of which
// another rank has none.
func stateSenders(intros []intro) map[string]int {
	senders := map[string]int{}
	for rank, in := range intros {
		for _, name := range in.States {
			training := mpicache.TrainingOfState(name)
			if _, known := senders[training]; !known {
				senders[training] = rank
			}
		}
	}
	maps.DeleteFunc(senders, func(training string, _ int) bool {
		return !slices.ContainsFunc(intros,
			func(in intro) bool { return !hasStateOf(in.States, training) })
	})
	return senders
}

func hasStateOf(names []string, training string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return mpicache.TrainingOfState(name) == training
	})
}
