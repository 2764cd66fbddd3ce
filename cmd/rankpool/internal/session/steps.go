package session

import (
	"os"
	"path/filepath"

	"rankpool/slurm"
)

// The files in the session folder that have the numbers of the training step and of the cache's.
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
