// Package systems holds the published cache systems for deep-learning training. A system is a named
// triple of scorer, sampler and policy, with its options.
//
// Like package scheduler, it only decides: it uses no clock, starts no goroutine, opens no file,
// and draws random numbers only from a seed.
package systems
