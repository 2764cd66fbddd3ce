package dataset

import (
	"bytes"
	"slices"

	"rankpool/scheduler/draw"
)

// A Format is how a sample is stored in its file.
type Format uint8

// The formats. Their numbers are part of the sample index.
const (
	FormatFile Format = iota // the sample is the whole file
	// the sample is a range of bytes of a file of any format; scans never return these.
	FormatPart
	// the sample is one or several members of a tar shard, as WebDataset groups them.
	FormatTar
	// the sample is the data of a record of a TFRecord file, followed by a checksum of 4 bytes.
	FormatTFRecord
	formats
)

// RecordCRCBytes is the size of the checksum after a TFRecord's data.
const RecordCRCBytes = 4

// String returns the format's name: file, part, tar, tfrecord.
func (f Format) String() string { return formatNames[f] }

var formatNames = [formats]string{"file", "part", "tar", "tfrecord"}

// formatOf returns the format with a name.
func formatOf(name string) (Format, bool) {
	f := slices.Index(formatNames[:], name)
	return Format(f), f >= 0
}

// A FormatCount counts the samples of a format in a data set, and the files that hold them.
type FormatCount struct {
	Format         Format
	Samples, Files int
}

// Formats counts the samples of each format that occurs, in the order of the formats' numbers. It
// assumes that the samples of a file have consecutive ids, as after a scan.
func (m *Manifest) Formats() []FormatCount {
	var counts [formats]FormatCount
	for i := range m.Len() {
		id := draw.SampleID(i)
		c := &counts[m.Format(id)]
		c.Samples++
		if i == 0 || m.inFolder.at(i) != m.inFolder.at(i-1) || !bytes.Equal(m.name(id), m.name(id-1)) {
			c.Files++
		}
	}
	var found []FormatCount
	for f, c := range counts {
		if c.Format = Format(f); c.Samples > 0 {
			found = append(found, c)
		}
	}
	return found
}
