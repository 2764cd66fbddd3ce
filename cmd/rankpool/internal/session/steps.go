package session

import (
	"os"
	"path/filepath"
	"strings"

	"rankpool/slurm"
)

// The files in the session folder that contain the number of the training step, and that of the
// cache's step. If a training has a job name, an @ and the name follow StepName.
const (
	StepName      = "training-step"
	CacheStepName = "cache-step"
)

// NoteStep records the step to which this process belongs, for the launcher.
func NoteStep(session, name string, job slurm.Job) {
	if job.InStep() {
		// without it srun ends the step in its own way
		_ = os.WriteFile(filepath.Join(session, name), []byte(job.StepID), 0o600)
	}
}

// TrainingSteps returns the numbers of the training steps that were recorded.
func TrainingSteps(session string) (steps []string) {
	for _, path := range stepPaths(session) {
		if step, err := os.ReadFile(path); err == nil {
			steps = append(steps, string(step))
		}
	}
	return steps
}

// stepPaths returns the files that contain the numbers of training steps.
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
