package rank

import (
	"math"
	"testing"

	"rankpool/cmd/rankpool/internal/entry"
)

func TestAddressSpace(t *testing.T) {
	const limited = "this shell limits a process to 1.0 GiB of address space (ulimit -v), and it " +
		"needs 2.0 GiB: " +
		"use \"ulimit -v unlimited\", or limit what is in memory by other means"
	for _, c := range []struct {
		limit, need uint64
		want        string
	}{
		{math.MaxUint64, 1 << 40, ""},
		{entry.Least, entry.Least, ""},
		{1 << 30, entry.Least, limited},
	} {
		got := ""
		if err := addressSpaceError(c.limit, c.need); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("limit %d: %q, want %q", c.limit, got, c.want)
		}
	}
}
