package memory

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/dustin/go-humanize"

	"rankpool/slurm"
)

// An Amount is how much memory the user gives to samples: bytes of each node, or a share of the
// data over all nodes.
type Amount struct {
	Bytes   int64   // of each node, if IsShare is false
	Share   float64 // of the data's bytes, in [0, 1]
	IsShare bool
}

// Parse reads a size as ParseSize does, or "20%" (a share of the data).
//
// Shares are in [0, 100].
func Parse(text string) (Amount, error) {
	if number, found := strings.CutSuffix(strings.TrimSpace(text), "%"); found {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return Amount{}, fmt.Errorf("%q must be between 0%% and 100%%", text)
		}
		return Amount{Share: percent / 100, IsShare: true}, nil
	}
	bytes, err := ParseSize(text)
	return Amount{Bytes: bytes}, err
}

// minUnitless is the smallest number without a unit that counts as bytes, except 0: a smaller one,
// as in "64", was meant in another unit.
const minUnitless = 1 << 20

// ParseSize reads "64GiB" or "0": a number of bytes in [0, 2⁶³).
//
// Units are binary (KiB, MiB, GiB, TiB) or decimal (KB, MB, GB, TB), or B. A number without a unit
// is bytes; if it is below 1 MiB and not 0, the error lists the units.
func ParseSize(text string) (int64, error) {
	bytes, err := humanize.ParseBytes(strings.TrimSpace(text))
	if err != nil || bytes > math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size such as 64GiB, 20GB or 0", text)
	}
	if 0 < bytes && bytes < minUnitless && !strings.ContainsFunc(text, unicode.IsLetter) {
		return 0, fmt.Errorf("%q has no unit: write a size such as 64GiB, 64MB or 64B", text)
	}
	return int64(bytes), nil
}

// Available returns the limit that leaves this process the least memory.
//
// The size of /dev/shm is not considered: the kernel does not bound a memfd by that mount's limit.
func Available() slurm.Memory { return slurm.ReadMemory(os.ReadFile, os.Getenv, 0) }
