package main

import (
	"os"
	"testing"

	"rankpool/cmd/rankpool/internal/world"
)

// TestDropLeftovers checks that the environment is that of the batch script again. Nothing above
// this process is a slurmstepd of that job.
func TestDropLeftovers(t *testing.T) {
	for name, value := range map[string]string{
		"SLURM_JOB_ID": "400008", "SLURM_JOB_NUM_NODES": "2", "SLURM_TASKS_PER_NODE": "1(x2)",
		"SLURM_NTASKS":  "1",
		"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1",
		"SLURM_STEP_TASKS_PER_NODE": "1",
	} {
		t.Setenv(name, value)
	}
	dropLeftovers()
	if step, found := os.LookupEnv("SLURM_STEP_NUM_TASKS"); found ||
		os.Getenv("SLURM_NTASKS") != "2" {
		t.Errorf("SLURM_STEP_NUM_TASKS=%q (%v), SLURM_NTASKS=%q", step, found,
			os.Getenv("SLURM_NTASKS"))
	}
	if at := world.Find(os.Getenv); at.Tasks != 0 {
		t.Errorf("the batch script has the place of a task: %+v", at)
	}
}
