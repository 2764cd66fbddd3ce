// Package scheduler has no code: its packages decide, and do nothing else. Which samples an epoch
// draws is in draw, which trainer consumes each draw in plan, which samples are fetched, asked for,
// kept, delivered and evicted, and when, in stager, what ranks agree on and when an epoch is
// planned in protocol. Published systems are in systems. Imports go that way only: plan imports
// draw; stager and protocol import plan and draw, and not each other.
//
// They are pure: no clock, no goroutines, no I/O, no global random numbers. The same inputs give
// the same outputs on every rank and on every machine. Time is counted in global batches.
//
// Words:
//
//	sample           one training item, a dense id 0 … N-1
//	rank             an MPI rank, one a node; importance ranks are always written out
//	trainer          one training process
//	draw             one use of a sample in an epoch; an epoch is a sequence of draws
//	global batch     the draws that one optimiser step consumes over all trainers
//	score            the importance of a sample, fed back by training, non-negative
//	owner            the rank whose partition may hold a sample
//	plan             an epoch's draws and who consumes each
//	window           the global batches being brought in ahead of their use
//	stage            to bring bytes from storage into memory ahead of their use
package scheduler
