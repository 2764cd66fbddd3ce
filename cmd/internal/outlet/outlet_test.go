package outlet

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A slowWriter accepts writes as its gate allows, and fails as set.
type slowWriter struct {
	bytes.Buffer
	gate chan struct{} // nil: open
	err  error
}

func (w *slowWriter) Write(p []byte) (int, error) {
	if w.gate != nil {
		<-w.gate
	}
	if w.err != nil {
		return 0, w.err
	}
	return w.Buffer.Write(p)
}

// TestOutletNobodyReads checks that lines that do not fit are dropped and counted, and that the
// count is written when the reader continues.
func TestOutletNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &slowWriter{gate: make(chan struct{})}
		o := New(to, 20, nil)
		for i := range 10 {
			fmt.Fprintf(o, "line %d\n", i) // must not block, although nobody reads
			synctest.Wait()
		}
		if o.Close(time.Hour) {
			t.Error("closed, and all was written, without a reader")
		}
		close(to.gate)
		synctest.Wait()
		want := "line 0\nline 1\nline 2\nrankpool: 7 messages were dropped here: the reader was " +
			"too slow\n"
		if got := to.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// TestOutletFails checks that consecutive errors are reported once, and the lost lines when writing
// works again.
func TestOutletFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &slowWriter{err: errors.New("the disk is full")}
		var told []string
		o := New(
			to, 1000,
			func(lost int64, err error) { told = append(told, fmt.Sprint(lost, " ", err)) })
		write := func(text string) {
			fmt.Fprintln(o, text)
			synctest.Wait()
		}
		write("one")
		write("two\nthree")
		to.err = nil
		write("four")
		to.err = errors.New("it is full again")
		write("five")
		if !o.Close(time.Second) {
			t.Error("it does not end")
		}
		write("six") // the reader has gone
		if got, want := to.String(), "four\n"; got != want {
			t.Errorf("written %q, want %q", got, want)
		}
		if got, want := strings.Join(told, ", "),
			"0 the disk is full, 3 <nil>, 0 it is full again"; got != want {
			t.Errorf("reported %q, want %q", got, want)
		}
	})
}

func TestOutletUnused(t *testing.T) {
	if !New(nil, 0, nil).Close(time.Hour) {
		t.Error("an unused outlet does not end")
	}
}
