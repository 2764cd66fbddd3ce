package session

import (
	"os"
	"path/filepath"
	"strings"

	"rankpool/slurm"
)

// The files in the session folder that have the numbers of the training step and of the cache's.
// The name of a training's job, if it has one, follows the first after an @.
const (
	StepName      = "training-step"
	CacheStepName = "cache-step"
)

// NoteStep notes the step that this process is a task of, for the launcher.
func NoteStep(session, name string, job slurm.Job) {
	if job.InStep() {
		// without it srun ends the step its own way
		_ = os.WriteFile(filepath.Join(session, name), []byte(job.StepID), 0o600)
	}
}

// TrainingSteps returns the numbers of the training steps that were noted.
func TrainingSteps(session string) (steps []string) {
	for _, path := range stepPaths(session) {
		if step, err := os.ReadFile(path); err == nil {
			steps = append(steps, string(step))
		}
	}
	return steps
}

// stepPaths returns the files that have their numbers.
func stepPaths(session string) []string {
	names, _ := os.ReadDir(session) // without it none is known
	var paths []string
	for _, name := range names {
		if strings.HasPrefix(name.Name(), StepName) {
			paths = append(paths, filepath.Join(session, name.Name()))
		}
	}
	return paths
}
