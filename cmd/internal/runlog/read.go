package runlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLineBytes is more than a line of a rank with 64 GPUs needs (some 30 KiB). A longer line is not
// an event.
const maxLineBytes = 1 << 20

// Read calls handle for each event of a log, in order. A rank that was killed may have left half a
// line, to which the next one is appended: broken counts such lines, and the rest of the line is
// parsed. Read needs memory for one line. The error is log's.
func Read(log io.Reader, handle func(Event)) (broken int64, err error) {
	lines := bufio.NewReaderSize(log, maxLineBytes)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			broken++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		} else if line = bytes.TrimSpace(line); len(line) > 0 && !readLine(line, handle) {
			broken++
		}
		if errors.Is(err, io.EOF) {
			return broken, nil
		}
		if err != nil {
			return broken, err
		}
	}
}

// ReadFiles reads logs, in order of time, as one run.
func ReadFiles(paths ...string) (*Run, error) {
	var b Builder
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("the run log cannot be read: %w", err)
		}
		b.NextFile()
		broken, err := Read(f, b.Add)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("run log %s cannot be read: %w", path, err)
		}
		b.AddBroken(broken)
	}
	return b.Run(), nil
}

// readLine handles the event on a line, or the one after half an event. It reports whether the line
// was intact.
func readLine(line []byte, handle func(Event)) bool {
	e, err := Parse(line)
	if err == nil {
		handle(e)
		return true
	}
	if at := bytes.LastIndex(line, []byte(`{"event":"`)); at > 0 {
		if e, err := Parse(line[at:]); err == nil {
			handle(e)
		}
	}
	return false
}
