package dataset

import (
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go"

	"rankpool/scheduler"
)

var errMembers = errors.New("the columns of the members do not agree")

// readSharded reads the columns that a manifest of whole files does not have: formats, checksums
// and members.
func (m *Manifest) readSharded(file *parquet.File) error {
	has := func(path ...string) bool { _, found := file.Schema().Lookup(path...); return found }
	if has("format") {
		if err := m.readFormats(file); err != nil {
			return err
		}
	}
	if has("xxh3") {
		if err := m.readChecksums(file); err != nil {
			return err
		}
	}
	if has("members", "list", "element", "kind") {
		return m.readMembers(file)
	}
	return nil
}

// readFormats reads the formats; the columns of offsets and formats are not kept if all samples are
// whole files.
func (m *Manifest) readFormats(file *parquet.File) error {
	row, other := 0, false
	read := make([]Format, 0, m.Len())
	err := readColumn(file, "format", isText, func(v parquet.Value) error {
		format, known := formatOf(string(v.ByteArray()))
		if !known {
			return fmt.Errorf("unknown format %q", v.ByteArray())
		}
		if format == FormatFile && m.Offset(scheduler.SampleID(row)) != 0 {
			return fmt.Errorf("a sample that is a whole file has the offset %d",
				m.Offset(scheduler.SampleID(row)))
		}
		read, other = append(read, format), other || format != FormatFile
		row++
		return nil
	})
	if err != nil || !other {
		return err
	}
	m.addFormats()
	m.formats = read
	return nil
}

// readChecksums reads the checksums; a column of zeros is not kept.
func (m *Manifest) readChecksums(file *parquet.File) error {
	sums, known := make([]uint64, 0, m.Len()), false
	err := readColumn(file, "xxh3", isInteger, func(v parquet.Value) error {
		if v.Kind() != parquet.Int64 {
			return fmt.Errorf("a checksum is of type %s", v.Kind())
		}
		sums, known = append(sums, v.Uint64()), known || v.Uint64() != 0
		return nil
	})
	if err == nil && known {
		m.checksums = sums
	}
	return err
}

// readMembers reads the three columns of the members, and checks that they are consistent.
func (m *Manifest) readMembers(file *parquet.File) error {
	t := &m.members
	t.ends = make([]uint32, 0, m.Len())
	err := readList(file, isText, func(v parquet.Value) error {
		t.kind.wide = append(t.kind.wide, t.kindNumber(string(v.ByteArray())))
		return nil
	}, func() error {
		t.ends = append(t.ends, uint32(t.kind.len()))
		return nil
	}, "members", "list", "element", "kind")
	if err != nil {
		return err
	}
	for name, column := range map[string]*[]int64{"offset": &t.offsets.wide, "size": &t.sizes.wide} {
		row := 0
		err := readList(file, isInteger, func(v parquet.Value) error {
			if v.Kind() != parquet.Int64 || len(*column) == t.kind.len() {
				return errMembers
			}
			*column = append(*column, v.Int64())
			return nil
		}, func() error {
			if len(*column) != int(t.ends[row]) {
				return errMembers
			}
			row++
			return nil
		}, "members", "list", "element", name)
		if err != nil {
			return err
		}
	}
	t.numbers = nil
	if t.kind.len() == 0 {
		*t = memberTable{}
	}
	for i := range t.ends {
		if err := t.check(i, m.sizes.at(i)); err != nil {
			return err
		}
	}
	return nil
}
