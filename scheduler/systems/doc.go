// Package systems holds the published cache systems of deep-learning training, one file each: a
// system is a named triple of scorer, sampler and policy, with the options that its paper gives it.
//
// Like package scheduler it decides and does nothing else: no clock, no goroutine, no file, no
// random number but of a seed.
package systems
