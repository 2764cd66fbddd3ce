// Package copier is the batch stager: it brings a data set, or a part of it, from storage into a
// folder of every rank.
//
// One rank walks the source and tells the others the plan; each rank looks what it has; then each
// file that anybody lacks is read once from storage, by one rank, and passed along the chain of the
// ranks that lack it, in chunks, while every rank writes it under a temporary name. What was
// written is read back and compared with the checksum of what was read, and renamed. What happens
// to a file is said by its item: no file of the final tree is ever half-written.
package copier
