package stage

import (
	"cmp"
	"context"
	"time"
)

// Options says what to stage, and how. Dest and Plan are required; the zero value of the others is
// a default.
type Options struct {
	Plan func(context.Context) (*Plan, error) // called on rank 0 only
	// absolute path of this rank's folder, which is created with its parents
	Dest     string
	Mode     Mode   // "": Partition
	Host     string // this rank's machine, for the report
	Checksum bool   // read existing copies, and compare their checksums too

	ChunkBytes int // of a frame; 0: 2 MiB
	Buffers    int // chunks in transit in each of three directions, at least 1; 0: 8
	Readers    int // files read at a time; 0: 32
	Writers    int // frames written at a time; 0: 8

	// Limits, for all ranks together, on bytes read from storage and files opened there per second; 0:
	// no limit. A rank's part of the limits is its part of what is to be read.
	MaxBytesPerSecond, MaxOpensPerSecond float64

	Prune bool // in Partition mode: remove the stale copies, see Report

	Ticks     <-chan time.Time // when ranks send a sign of life; nil: every second
	PeerTicks int              // ticks after which a silent rank is dead; 0: 30
	// called on rank 0 at every tick, by one goroutine, with the bytes that all ranks have copied, and
	// those to be copied, 0 until they are known; nil: nobody
	Progress func(bytes, all int64)

	// what fails in a test, at the source and at the destination
	sourceFault, destFault func(op, path string) error
}

// defaults fills in what the caller left out.
//
// Chunks of 2 MiB take 17 ms on a 1 Gbit link and 0.2 ms on a 100 Gbit one, each far more than a
// message's latency, and are small enough to fill a chain of a thousand ranks in seconds. With 24
// of them in transit and one for each reader, a rank needs 112 MiB at most.
func (o Options) defaults() *Options {
	o.Mode = cmp.Or(o.Mode, Partition)
	o.ChunkBytes, o.Buffers = cmp.Or(o.ChunkBytes, 2<<20), cmp.Or(o.Buffers, 8)
	o.Readers, o.Writers = cmp.Or(o.Readers, Requests), cmp.Or(o.Writers, 8)
	o.PeerTicks = cmp.Or(o.PeerTicks, 30)
	return &o
}

// Counts are what a rank, or all ranks, did. Items are files and links, counted once for each rank
// that gets them; folders do not count.
type Counts struct {
	Copied       int64 `json:"copied"`  // placed by this run
	Skipped      int64 `json:"skipped"` // already there
	Failed       int64 `json:"failed"`
	Bytes        int64 `json:"bytes"`         // of the copied files
	StorageReads int64 `json:"storage_reads"` // files opened at the source
	StorageBytes int64 `json:"storage_bytes"` // bytes read there
	Stale        int64 `json:"stale"`         // copies that do not belong to this partition any more
	Pruned       int64 `json:"pruned"`        // stale copies removed
}

// add adds other to c.
func (c *Counts) add(other *Counts) {
	c.Copied += other.Copied
	c.Skipped += other.Skipped
	c.Failed += other.Failed
	c.Bytes += other.Bytes
	c.StorageReads += other.StorageReads
	c.StorageBytes += other.StorageBytes
	c.Stale += other.Stale
	c.Pruned += other.Pruned
}

// A Report is the outcome.
type Report struct {
	Counts
	Seconds float64      `json:"seconds"`
	Mode    Mode         `json:"mode"`
	Ranks   []RankReport `json:"ranks"`
	// the first ten stale copies of each rank, relative to its destination
	StalePaths   []string  `json:"stale_paths,omitempty"`
	Failures     []Failure `json:"failures,omitempty"` // in order of path, each path once
	TotalItems   int64     `json:"total_items"`        // of the plan, counted once
	TotalBytes   int64     `json:"total_bytes"`
	SourceFolder string    `json:"source"`
}

// A RankReport is one rank's part of the report.
type RankReport struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	Dest string `json:"dest"`
	Counts

	Failures   []Failure `json:"-"`
	StalePaths []string  `json:"-"`
}
