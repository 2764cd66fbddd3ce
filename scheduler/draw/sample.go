// Package draw decides which samples an epoch draws, in which order, and which rank owns a sample.
package draw

// SampleID names a sample: its row in the manifest, 0 ≤ id < N.
type SampleID uint32
