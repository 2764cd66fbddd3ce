package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A doctorProgress shows which check is running: a bar on a terminal, else a line for each check
// that takes long.
type doctorProgress struct {
	bar   *progressbar.ProgressBar // nil where stderr is not a terminal
	quiet bool
}

func (o *doctorOptions) newProgress() *doctorProgress {
	p := &doctorProgress{quiet: o.quiet}
	if !p.quiet && term.IsTerminal(int(os.Stderr.Fd())) {
		p.bar = progressbar.NewOptions(len(o.checks)+1, progressbar.OptionSetWriter(os.Stderr),
			progressbar.OptionSetWidth(20), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
			progressbar.OptionClearOnFinish())
	}
	return p
}

// update shows which check is running, and for how long.
func (p *doctorProgress) update(check string, index int, passed time.Duration) {
	switch {
	case p.quiet:
	case p.bar != nil:
		_ = p.bar.Set(index) // a terminal that cannot be written to changes nothing
		p.bar.Describe("checking " + check)
	case passed > 0:
		fmt.Fprintf(os.Stderr, "rankpool: still checking %s, for %.0f s\n", check, passed.Seconds())
	}
}

// show shows what is done after the checks of this node.
func (p *doctorProgress) show(what string) {
	if p.bar != nil {
		p.bar.Describe(what)
	}
}

// end removes the bar from the terminal.
func (p *doctorProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}
