// Package mpicache is a rank at run time: the slab that holds samples in shared memory, the
// exchange of samples and scores with the other ranks, and the door at which the node's training
// processes are served.
//
//	Node           a rank; it drives one stager (scheduler/stager) per data set
//	door.Client    a connection to a door, from Go
//
// Package slab manages the memory, and package transport carries the messages between ranks.
package mpicache
