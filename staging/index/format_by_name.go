package index

import (
	"regexp"
	"strings"

	"rankpool/staging/dataset"
	"rankpool/staging/shards"
)

// tfRecordName matches the names of TFRecord files: x.tfrecord, x.tfrecords, x.tfrec, each also as
// part of a set, x.tfrecord-00001-of-00128. partName matches the last part of these.
var (
	tfRecordName = regexp.MustCompile(`\.(tfrecords?|tfrec)(-[0-9]+-of-[0-9]+)?$`)
	partName     = regexp.MustCompile(`-[0-9]+-of-[0-9]+$`)
)

// mayBeTFRecord reports whether a name that other files may have too is one that tools give to
// TFRecord files: x.record, train-00001-of-01024.
func mayBeTFRecord(name string) bool {
	lower := shards.LowerASCII(name)
	last := lower[len(lower)-1] // most names have no digit there, which is faster than partName
	return strings.HasSuffix(lower, ".record") ||
		'0' <= last && last <= '9' && partName.MatchString(lower)
}

// formatByName returns the format of the samples in a file of this name.
func formatByName(name string) dataset.Format {
	switch lower := shards.LowerASCII(name); {
	case strings.HasSuffix(lower, ".tar"):
		return dataset.FormatTar
	case tfRecordName.MatchString(lower):
		return dataset.FormatTFRecord
	}
	return dataset.FormatFile
}
