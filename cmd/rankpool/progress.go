package main

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

// scanLineEvery is the pause between two progress lines of a scan where stderr is a file: a scan of a million
// files takes minutes, and its log should stay short.
const scanLineEvery = 10 * time.Second

// isTerminal reports whether what is written to w appears on a terminal.
func isTerminal(w io.Writer) bool {
	switch w := w.(type) {
	case *os.File:
		return term.IsTerminal(int(w.Fd()))
	case *outlet.Outlet:
		return isTerminal(w.Target())
	}
	return false
}

// A scanProgress shows how far a scan is: a counter on a terminal, else a line now and then.
type scanProgress struct {
	to    io.Writer
	bar   *progressbar.ProgressBar // nil where to is no terminal
	quiet bool
	begin time.Time
	last  time.Time
}

func newScanProgress(to io.Writer, quiet bool) *scanProgress {
	p := &scanProgress{to: to, quiet: quiet, begin: time.Now(), last: time.Now()}
	if !quiet && isTerminal(to) {
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(to), progressbar.OptionSetDescription("indexing"),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("files"),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

// update tells the number of files found so far. Calls must not overlap.
func (p *scanProgress) update(files int64) {
	switch {
	case p.quiet:
	case p.bar != nil:
		_ = p.bar.Set64(files) // a terminal that cannot be written to changes nothing
	case time.Since(p.last) >= scanLineEvery:
		p.last = time.Now()
		fmt.Fprintf(p.to, "rankpool: indexed %s files in %.0f s (%s files/s)\n", humanize.Comma(files),
			time.Since(p.begin).Seconds(), humanize.Comma(int64(float64(files)/time.Since(p.begin).Seconds())))
	}
}

// end removes the counter from the terminal.
func (p *scanProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// A readProgress shows how much of a data set has been read: a bar on a terminal, else a line now and then.
type readProgress struct {
	scanProgress
	total int64 // bytes
}

func newReadProgress(to io.Writer, quiet bool, totalBytes int64) *readProgress {
	p := &readProgress{scanProgress{to: to, quiet: quiet, begin: time.Now(), last: time.Now()}, totalBytes}
	if !quiet && totalBytes > 0 && isTerminal(to) {
		p.bar = progressbar.NewOptions64(totalBytes, progressbar.OptionSetWriter(to), progressbar.OptionSetDescription("reading"),
			progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

// update tells the number of bytes read so far. Calls must not overlap.
func (p *readProgress) update(bytes int64) {
	switch {
	case p.quiet:
	case p.bar != nil:
		_ = p.bar.Set64(min(bytes, p.total-1)) // a full bar would end itself; a terminal that cannot be written to changes nothing
	case time.Since(p.last) >= scanLineEvery:
		p.last = time.Now()
		fmt.Fprintf(p.to, "rankpool: read %s of %s in %.0f s (%s/s)\n", humanize.IBytes(uint64(bytes)), humanize.IBytes(uint64(p.total)),
			time.Since(p.begin).Seconds(), humanize.IBytes(uint64(float64(bytes)/time.Since(p.begin).Seconds())))
	}
}

// A trainProgress shows how far training is: a bar on a terminal, else a line every so often.
type trainProgress struct {
	to    io.Writer
	bar   *progressbar.ProgressBar // nil where to is no terminal
	every time.Duration            // between two lines; 0: show nothing
	last  time.Time
	epoch string // what the bar counts now
}

func newTrainProgress(to io.Writer, every time.Duration) *trainProgress {
	p := &trainProgress{to: to, every: every, last: time.Now()}
	if every > 0 && isTerminal(to) {
		p.bar = progressbar.NewOptions(1, progressbar.OptionSetWriter(to), progressbar.OptionSetWidth(20),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())
	}
	return p
}

// update shows one status of rank 0.
func (p *trainProgress) update(s control.DataStatus) {
	if p.every <= 0 || s.Batches <= 0 {
		return
	}
	if p.bar == nil {
		if time.Since(p.last) >= p.every {
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

// end removes the bar from the terminal.
func (p *trainProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
