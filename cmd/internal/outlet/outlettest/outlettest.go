// Package outlettest lets tests read what was written to stderr.
package outlettest

import (
	"bytes"
	"testing"
	"time"

	"rankpool/cmd/internal/outlet"
)

// Stderr returns what f writes to outlet.Stderr.
func Stderr(t *testing.T, f func()) string {
	t.Helper()
	var text bytes.Buffer // read after the last write
	defer func(before *outlet.Outlet) { outlet.Stderr = before }(outlet.Stderr)
	outlet.Stderr = outlet.New(&text, outlet.StderrBytes, nil)
	f()
	if !outlet.Stderr.Close(time.Minute) {
		t.Fatal("stderr was not written within a minute")
	}
	return text.String()
}
