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

	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/outlet"
)

// scanLineEvery is the pause between progress lines of a scan if stderr is a file: a scan of a
// million files takes minutes, and its log should stay short.
const scanLineEvery = 10 * time.Second

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

// A Scan shows how far a scan is: a counter on a terminal, else a line now and then.
type Scan struct {
	to    io.Writer
	bar   *progressbar.ProgressBar // nil where to is not a terminal
	quiet bool
	begin time.Time
	last  time.Time
}

// NewScan shows a scan on to, unless it is to be quiet.
func NewScan(to io.Writer, quiet bool) *Scan {
	p := &Scan{to: to, quiet: quiet, begin: time.Now(), last: time.Now()}
	if !quiet && isTerminal(to) {
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(to),
			progressbar.OptionSetDescription("indexing"),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("files"),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

// Update shows the number of files found so far. Calls must not overlap.
func (p *Scan) Update(files int64) {
	p.show(files, func(seconds float64) string {
		return fmt.Sprintf("indexed %s files in %.0f s (%s files/s)", humanize.Comma(files), seconds,
			humanize.Comma(int64(float64(files)/seconds)))
	})
}

// show moves the bar, or prints a line when one is due; seconds counts from the beginning of the
// scan.
func (p *Scan) show(done int64, line func(seconds float64) string) {
	switch {
	case p.quiet:
	case p.bar != nil:
		_ = p.bar.Set64(done) // a terminal that cannot be written to changes nothing
	case time.Since(p.last) >= scanLineEvery:
		p.last = time.Now()
		fmt.Fprintln(p.to, "rankpool:", line(time.Since(p.begin).Seconds()))
	}
}

// End removes the counter from the terminal.
func (p *Scan) End() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// A Read shows how much of a data set has been read: a bar on a terminal, else a line now and then.
type Read struct {
	Scan
	total int64 // bytes
}

// NewRead shows the progress of reading a number of bytes.
func NewRead(to io.Writer, quiet bool, totalBytes int64) *Read {
	p := &Read{Scan{to: to, quiet: quiet, begin: time.Now(), last: time.Now()}, totalBytes}
	if !quiet && totalBytes > 0 && isTerminal(to) {
		p.bar = progressbar.NewOptions64(totalBytes, progressbar.OptionSetWriter(to),
			progressbar.OptionSetDescription("reading"),
			progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish())
	}
	return p
}

// Update shows the number of bytes read so far. Calls must not overlap.
func (p *Read) Update(bytes int64) {
	// a full bar would end itself
	p.show(min(bytes, p.total-1), func(seconds float64) string {
		return fmt.Sprintf("read %s of %s in %.0f s (%s/s)", humanize.IBytes(uint64(bytes)),
			humanize.IBytes(uint64(p.total)), seconds,
			humanize.IBytes(uint64(float64(bytes)/seconds)))
	})
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
	if every > 0 && isTerminal(to) {
		p.bar = progressbar.NewOptions(1, progressbar.OptionSetWriter(to),
			progressbar.OptionSetWidth(20),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish())
	}
	return p
}

// Update shows one status of rank 0.
func (p *Train) Update(s control.DataStatus) {
	if p.Every <= 0 || s.Batches <= 0 {
		return
	}
	if p.bar == nil {
		if time.Since(p.last) >= p.Every {
			p.last = time.Now()
			fmt.Fprintln(p.to, "rankpool:", s)
		}
		return
	}
	if epoch := fmt.Sprint(s.Name, s.Epoch); epoch != p.epoch {
		p.epoch = epoch
		p.bar.Reset()
		p.bar.ChangeMax(s.Batches)
	}
	p.bar.Describe(fmt.Sprintf("%s epoch %d, hits %.1f %%", s.Name, s.Epoch, s.HitPercent()))
	_ = p.bar.Set(min(s.Batch, s.Batches-1)) // a full bar would end itself
}

// End removes the bar from the terminal.
func (p *Train) End() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// A Layout shows for how many samples the layout is known: a bar on a terminal, else a line now and
// then.
type Layout struct {
	Scan
	total int64
}

// NewLayout shows the progress of reading the layouts of a number of samples.
func NewLayout(to *os.File, quiet bool, total int64) *Layout {
	p := &Layout{Scan{to: to, quiet: quiet, begin: time.Now(), last: time.Now()}, total}
	if !quiet && term.IsTerminal(int(to.Fd())) {
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(to),
			progressbar.OptionSetDescription("reading layouts"),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish())
	}
	return p
}

// Update shows the number of samples done so far. Calls must not overlap.
func (p *Layout) Update(samples int64) {
	// a full bar would end itself
	p.show(min(samples, p.total-1), func(seconds float64) string {
		return fmt.Sprintf("read the layouts of %s of %s samples in %.0f s", humanize.Comma(samples),
			humanize.Comma(p.total), seconds)
	})
}
