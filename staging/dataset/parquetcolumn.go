package dataset

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

func isText(t parquet.Type) bool { return t.Kind() == parquet.ByteArray }

// isInteger reports whether a column holds integers, or times in nanoseconds.
func isInteger(t parquet.Type) bool {
	if logical := t.LogicalType(); logical != nil {
		if timestamp, is := logical.Value.(*format.TimestampType); is {
			_, nanoseconds := timestamp.Unit.Value.(*format.NanoSeconds)
			return nanoseconds
		}
	}
	return t.Kind() == parquet.Int32 || t.Kind() == parquet.Int64
}

// readInts calls use with each value of an integer column, in the order of rows. A value below
// least is an error.
func readInts(file *parquet.File, name string, least int64, use func(int64) error) error {
	return readColumn(file, name, isInteger, func(v parquet.Value) error {
		n := int64(v.Int32())
		if v.Kind() == parquet.Int64 {
			n = v.Int64()
		}
		if n < least {
			return fmt.Errorf("%d is less than %d", n, least)
		}
		return use(n)
	})
}

// readColumn calls use with each value of a column, in the order of rows; a value's bytes are valid
// during the call only. The column must have as many rows as the file.
func readColumn(file *parquet.File, name string, fits func(parquet.Type) bool,
	use func(parquet.Value) error,
) error {
	leaf, found := file.Schema().Lookup(name)
	if !found {
		return fmt.Errorf("has no column %s", name)
	}
	if leaf.Node.Repeated() || !fits(leaf.Node.Type()) {
		return fmt.Errorf("column %s is of type %s, which does not fit", name, leaf.Node.Type())
	}
	rows := int64(0)
	checked := func(v parquet.Value) error {
		if rows++; rows > file.NumRows() {
			return fmt.Errorf("has %d rows, column %s has more", file.NumRows(), name)
		}
		if v.IsNull() {
			return fmt.Errorf("column %s has no value in row %d", name, rows-1)
		}
		if err := use(v); err != nil {
			return fmt.Errorf("column %s, row %d: %w", name, rows-1, err)
		}
		return nil
	}
	for _, group := range file.RowGroups() {
		if err := readChunk(group.ColumnChunks()[leaf.ColumnIndex], checked); err != nil {
			return err
		}
	}
	if rows != file.NumRows() {
		return fmt.Errorf("has %d rows, column %s has %d", file.NumRows(), name, rows)
	}
	return nil
}

// readList calls use with each value of a column of lists, in the order of rows, and endRow after
// those of each row. The column must have as many rows as the file; path leads to the values.
func readList(file *parquet.File, fits func(parquet.Type) bool, use func(parquet.Value) error,
	endRow func() error, path ...string,
) error {
	name := strings.Join(path, ".")
	leaf, found := file.Schema().Lookup(path...)
	if !found {
		return fmt.Errorf("has no column %s", name)
	}
	if leaf.MaxRepetitionLevel != 1 || !fits(leaf.Node.Type()) {
		return fmt.Errorf("column %s is of type %s, which does not fit", name, leaf.Node.Type())
	}
	rows := int64(0)
	checked := func(v parquet.Value) error {
		if v.RepetitionLevel() == 0 {
			if rows > 0 {
				if err := endRow(); err != nil {
					return err
				}
			}
			if rows++; rows > file.NumRows() {
				return fmt.Errorf("has %d rows, column %s has more", file.NumRows(), name)
			}
		}
		if v.IsNull() { // an empty list
			return nil
		}
		return use(v)
	}
	for _, group := range file.RowGroups() {
		if err := readChunk(group.ColumnChunks()[leaf.ColumnIndex], checked); err != nil {
			return fmt.Errorf("column %s: %w", name, err)
		}
	}
	if rows != file.NumRows() {
		return fmt.Errorf("has %d rows, column %s has %d", file.NumRows(), name, rows)
	}
	return endRow()
}

func readChunk(chunk parquet.ColumnChunk, use func(parquet.Value) error) error {
	pages := chunk.Pages()
	defer pages.Close()
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("is damaged: %w", err)
		}
		err = readPage(page, use)
		parquet.Release(page)
		if err != nil {
			return err
		}
	}
}

func readPage(page parquet.Page, use func(parquet.Value) error) error {
	var buffer [512]parquet.Value
	values := page.Values()
	for {
		n, err := values.ReadValues(buffer[:])
		for _, v := range buffer[:n] {
			if err := use(v); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("is damaged: %w", err)
		case n == 0:
			return errors.New("is damaged: a page ends early")
		}
	}
}
