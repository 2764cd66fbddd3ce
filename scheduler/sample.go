package scheduler

// SampleID names a sample: its row in the manifest, 0 ≤ id < N.
type SampleID uint32
