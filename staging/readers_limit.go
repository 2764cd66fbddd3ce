package staging

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// readersLimitName is the file in a rank's folder that client and rank know it by.
const readersLimitName = "storage-limit"

// WriteReadersLimit tells the trainers of a node which share of the job's limits, bytes and opened
// files a second, is theirs when they read storage themselves, because the rank is gone; 0 is no
// limit. The file is theirs to write to from then on (docs/wire/README.md). One that says the same
// is left as it is: a rank that is started again finds the trainers reading.
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

// appendReadersLimit appends the file: magic, bytes a second, opens a second, and until when what
// was read so far takes.
func appendReadersLimit(b []byte, bytesPerSecond, opensPerSecond float64) []byte {
	b = append(b, "rplimit1"...)
	for _, rate := range []float64{bytesPerSecond, opensPerSecond} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(rate))
	}
	return binary.LittleEndian.AppendUint64(b, 0)
}
