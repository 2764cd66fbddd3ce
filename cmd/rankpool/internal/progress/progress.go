// Package progress shows how far a scan, a read or training has come: a bar on a terminal, else a
// line now and then.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"rankpool/cmd/internal/outlet"
	"rankpool/mpicache/door"
)

// lineEvery is the pause between the lines of a Counter if stderr is a file: a scan of a million
// files takes minutes, and its log should stay short.
const lineEvery = 10 * time.Second

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	switch w := w.(type) {
	case *os.File:
		return term.IsTerminal(int(w.Fd()))
	case *outlet.Outlet:
		return isTerminal(w.Target())
	}
	return false
}

// newBar returns a bar on to, or nil if that is not a terminal.
func newBar(to io.Writer, total int64, options ...progressbar.Option) *progressbar.ProgressBar {
	if !isTerminal(to) {
		return nil
	}
	return progressbar.NewOptions64(total, append(options, progressbar.OptionSetWriter(to),
		progressbar.OptionClearOnFinish())...)
}

// A Counter shows how far a scan or a read is: a bar on a terminal, else a line now and then.
type Counter struct {
	to    io.Writer
	bar   *progressbar.ProgressBar // nil where to is not a terminal
	quiet bool
	total int64 // -1: not known
	// line describes what was done in the seconds since the beginning.
	line  func(done int64, seconds float64) string
	begin time.Time
	last  time.Time
}

func newCounter(
	to io.Writer, quiet bool, total int64, line func(done int64, seconds float64) string,
	options ...progressbar.Option,
) *Counter {
	p := &Counter{
		to: to, quiet: quiet, total: total, line: line, begin: time.Now(), last: time.Now(),
	}
	if !quiet && total != 0 {
		p.bar = newBar(to, total, append(options,
			progressbar.OptionThrottle(100*time.Millisecond))...)
	}
	return p
}

// NewScan shows on to how many files a scan has found, unless it is to be quiet.
func NewScan(to io.Writer, quiet bool) *Counter {
	return newCounter(to, quiet, -1, func(files int64, seconds float64) string {
		return fmt.Sprintf("indexed %s files in %.0f s (%s files/s)", humanize.Comma(files), seconds,
			humanize.Comma(int64(float64(files)/seconds)))
	}, progressbar.OptionSetDescription("indexing"), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString("files"))
}

// NewRead shows how many bytes of a data set have been read.
func NewRead(to io.Writer, quiet bool, totalBytes int64) *Counter {
	return newCounter(to, quiet, totalBytes, func(bytes int64, seconds float64) string {
		return fmt.Sprintf("read %s of %s in %.0f s (%s/s)", humanize.IBytes(uint64(bytes)),
			humanize.IBytes(uint64(totalBytes)), seconds,
			humanize.IBytes(uint64(float64(bytes)/seconds)))
	}, progressbar.OptionSetDescription("reading"), progressbar.OptionShowBytes(true))
}

// NewCopy shows how many bytes have been copied: a bar named what, else lines with a text of the
// caller's.
func NewCopy(to io.Writer, quiet bool, what string, text func(seconds float64) string) *Counter {
	return newCounter(to, quiet, -1, func(_ int64, seconds float64) string { return text(seconds) },
		progressbar.OptionSetDescription(what), progressbar.OptionShowBytes(true))
}

// SetTotal says how much there is to do.
func (p *Counter) SetTotal(total int64) {
	if p.total != total && p.bar != nil {
		p.bar.ChangeMax64(total)
	}
	p.total = total
}

// Update shows how much has been done so far. Calls must not overlap.
func (p *Counter) Update(done int64) {
	if p.total > 0 {
		done = min(done, p.total-1) // a full bar would end itself
	}
	switch {
	case p.quiet:
	case p.bar != nil:
		_ = p.bar.Set64(done) // a terminal that cannot be written to changes nothing
	case time.Since(p.last) >= lineEvery:
		p.last = time.Now()
		fmt.Fprintln(p.to, "rankpool:", p.line(done, time.Since(p.begin).Seconds()))
	}
}

// End removes the bar from the terminal.
func (p *Counter) End() { clearBar(p.bar) }

func clearBar(bar *progressbar.ProgressBar) {
	if bar != nil {
		_ = bar.Clear() // a terminal that cannot be written to changes nothing
	}
}

// A Train shows how far training is: a bar on a terminal, else a line every so often.
type Train struct {
	to    io.Writer
	bar   *progressbar.ProgressBar // nil where to is not a terminal
	Every time.Duration            // between two lines; 0: show nothing
	last  time.Time
	epoch string // what the bar counts now
}

// NewTrain shows the progress of training, once per interval if to is not a terminal.
func NewTrain(to io.Writer, every time.Duration) *Train {
	p := &Train{to: to, Every: every, last: time.Now()}
	if every > 0 {
		p.bar = newBar(to, 1, progressbar.OptionSetWidth(20), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false))
	}
	return p
}

// Update shows one status of rank 0.
func (p *Train) Update(s door.DataStatus) {
	if p.Every <= 0 || s.Batches <= 0 {
		return
	}
	hits := 100 * float64(s.Hits) / float64(max(s.Draws, 1)) // in percent
	if p.bar == nil {
		if time.Since(p.last) >= p.Every {
			p.last = time.Now()
			fmt.Fprintf(p.to, "rankpool: %s epoch %d: batch %d of %d, hits %.1f %%\n", s.Name, s.Epoch,
				s.Batch, s.Batches, hits)
		}
		return
	}
	if epoch := fmt.Sprint(s.Name, s.Epoch); epoch != p.epoch {
		p.epoch = epoch
		p.bar.Reset()
		p.bar.ChangeMax(s.Batches)
	}
	p.bar.Describe(fmt.Sprintf("%s epoch %d, hits %.1f %%", s.Name, s.Epoch, hits))
	_ = p.bar.Set(min(s.Batch, s.Batches-1)) // a full bar would end itself
}

// End removes the bar from the terminal.
func (p *Train) End() { clearBar(p.bar) }
