package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// readersLimitName is the name of the file in a rank's folder, which the client knows too.
const readersLimitName = "storage-limit"

// WriteReadersLimit writes the share of the job's limits, in bytes and opened files per second,
// that a node's trainers have when they read storage themselves because the rank is gone; 0 is
// unlimited. From then on the trainers write to the file (docs/wire/README.md). A file with the
// same limits is left alone: a rank that restarts finds the trainers reading.
func WriteReadersLimit(folder string, bytesPerSecond, opensPerSecond float64) error {
	content := appendReadersLimit(nil, bytesPerSecond, opensPerSecond)
	path := filepath.Join(folder, readersLimitName)
	if old, err := os.ReadFile(path); err == nil && len(old) == len(content) &&
		string(old[:24]) == string(content[:24]) {
		return nil
	}
	temporary := path + ".tmp"
	err := os.WriteFile(temporary, content, 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("staging: %w", err), os.RemoveAll(temporary))
	}
	return nil
}

// appendReadersLimit appends the file's content: magic, bytes per second, opens per second, and the
// time at which the next read may begin.
func appendReadersLimit(b []byte, bytesPerSecond, opensPerSecond float64) []byte {
	b = append(b, "rplimit1"...)
	for _, rate := range []float64{bytesPerSecond, opensPerSecond} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(rate))
	}
	return binary.LittleEndian.AppendUint64(b, 0)
}
