// Package mpicache is a rank at run time. A Node composes it, keeps its time, and gathers counts:
//
//	client      the training processes at its door: what they may ask for
//	training    the trainings: it drives their coordinators (package scheduler)
//	store       the samples: it drives the stagers (package scheduler), one per data set
//
// Below these, package door has the frames of clients, slab manages the shared memory, and
// transport carries the messages between ranks.
package mpicache
