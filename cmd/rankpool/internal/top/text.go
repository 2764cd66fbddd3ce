package top

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize"

	"rankpool/mpicache/stats"
)

// The styles of text on a terminal; where there are no colours, lipgloss leaves them out.
var (
	strong = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	red    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	green  = lipgloss.NewStyle().Foreground(lipgloss.Green)
	yellow = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	cyan   = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
)

// The characters of a bar and the styles of local, remote, storage and fallback.
var (
	sourceGlyphs = [4]string{"█", "▓", "▒", "░"}
	sourceStyles = [4]lipgloss.Style{green, cyan, yellow, red}
)

// stack returns a bar of the shares of the four sources, whose sum is 1. A source with a small
// share gets a cell nevertheless, at the expense of the largest.
func stack(width int, shares ...stats.Measured) string {
	var cells [4]int
	left := width
	for i, share := range shares {
		cells[i] = int(math.Round(float64(share) * float64(width)))
		if share > 0 {
			cells[i] = max(1, cells[i])
		}
		left -= cells[i]
	}
	for ; left < 0; left++ {
		*largest(cells[:])--
	}
	*largest(cells[:]) += left
	bar := ""
	for i, n := range cells {
		bar += sourceStyles[i].Render(strings.Repeat(sourceGlyphs[i], n))
	}
	return bar
}

func largest(cells []int) *int { return &cells[slices.Index(cells, slices.Max(cells))] }

// shareText formats a share, "-" if there is none.
func shareText(share stats.Measured) string {
	if math.IsNaN(float64(share)) {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// bytesText shows a number of bytes.
func bytesText(n float64) string { return humanize.IBytes(uint64(max(0, n))) }

// latencyText formats the seconds of one read, "-" if there was none.
func latencyText(seconds stats.Measured) string {
	if math.IsNaN(float64(seconds)) {
		return "-"
	}
	return humanize.SIWithDigits(float64(seconds), 1, "s")
}
