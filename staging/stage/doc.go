// Package stage is the batch stager: it copies a data set, or a part of it, from storage to a
// folder on every rank.
//
// One rank walks the source and sends the plan to the others; each rank compares it with what it
// has; then each file that any rank is missing is read from storage once, by one rank, and passed
// in chunks along the chain of the ranks that miss it, while every rank writes it under a temporary
// name. A file is then read back, compared with the checksum of what was read, and renamed: no file
// of the final tree is ever incomplete.
package stage
