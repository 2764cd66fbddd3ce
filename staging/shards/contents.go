// Package shards finds the samples in files that hold many: tar shards in WebDataset's format, and
// TFRecord files. It reads headers only, by offset, so that the samples can be read in place later.
package shards

// Contents is the samples of one shard, in file order.
type Contents struct {
	// of a sample with several members: Offset is that of the first, Size the sum
	Samples []Range
	Labels  []uint32 // one per sample, in [0, MaxClasses); nil if the shard has none
	// the first sample without a class number, if others have one; "": none. Labels is then nil
	Unlabelled string

	// The members of the samples; Ends is nil when every sample is one range of bytes without a name.
	Kinds   []string // the extensions that occur, in lower case
	Ends    []uint32 // sample i has Members[Ends[i-1]:Ends[i]]
	Members []Member
}

// A Range is a range of bytes of a file.
type Range struct{ Offset, Size int64 }

// A Member is one file of a sample; Kind is an index into Contents.Kinds.
type Member struct {
	Range
	Kind uint32
}

// MaxClasses is the maximum number of classes for the labels of shards: far more than any data set
// has, but small enough that a file with other numbers in it does not become a list of a million
// classes.
const MaxClasses = 1 << 20
