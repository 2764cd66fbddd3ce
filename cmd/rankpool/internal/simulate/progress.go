package simulate

import (
	"os"
	"runtime"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// workers is how many simulations run concurrently. Each is one goroutine.
func workers() int { return runtime.GOMAXPROCS(0) }

// A simulateProgress shows how many simulations are done: a bar on a terminal, else nothing.
type simulateProgress struct {
	bar *progressbar.ProgressBar // nil without a terminal
}

func newSimulateProgress(to *os.File, simulations int) *simulateProgress {
	if !term.IsTerminal(int(to.Fd())) {
		return &simulateProgress{}
	}
	return &simulateProgress{bar: progressbar.NewOptions(simulations,
		progressbar.OptionSetWriter(to), progressbar.OptionSetDescription("simulating"),
		progressbar.OptionSetWidth(20), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())}
}

// update shows the number of simulations that are done. Calls must not overlap.
func (p *simulateProgress) update(done int) {
	if p.bar != nil {
		_ = p.bar.Set(done) // a terminal that cannot be written to changes nothing
	}
}

// end removes the bar from the terminal.
func (p *simulateProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
