// Package pack writes a data set as tar shards and a manifest, in an order of the caller's choice,
// so that a later job reads it sequentially with few, long reads.
//
// The content of a shard follows from manifest, order and shard size alone (Plan), so any rank
// writes the same bytes. Each shard is written under a temporary name, read back by the readers
// that training uses, and renamed; the manifest comes last. An interrupted run resumes from a
// journal.
package pack
