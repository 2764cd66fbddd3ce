package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize"
)

// A style is the style of a piece of text on a terminal.
type style int

const (
	plainText style = iota
	strong
	faint
	red
	green
	yellow
	blue
	cyan
)

// looks are what the styles look like.
var looks = [...]lipgloss.Style{
	strong: lipgloss.NewStyle().Bold(true),
	faint:  lipgloss.NewStyle().Faint(true),
	red:    lipgloss.NewStyle().Foreground(lipgloss.Red),
	green:  lipgloss.NewStyle().Foreground(lipgloss.Green),
	yellow: lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	blue:   lipgloss.NewStyle().Foreground(lipgloss.Blue),
	cyan:   lipgloss.NewStyle().Foreground(lipgloss.Cyan),
}

// A span is text in one style; every rune is one column wide.
type span struct {
	text  string
	style style
}

// A line is spans one after the other.
type line []span

func styled(s style, format string, args ...any) line {
	return line{{fmt.Sprintf(format, args...), s}}
}

func plain(text string) line { return line{{text, plainText}} }

// width returns the columns of the line.
func (l line) width() int {
	n := 0
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// cut returns the line's first columns.
func (l line) cut(width int) line {
	var out line
	for _, s := range l {
		if runes := []rune(s.text); len(runes) > width {
			s.text = string(runes[:width])
		}
		width -= utf8.RuneCountInString(s.text)
		if s.text != "" {
			out = append(out, s)
		}
	}
	return out
}

// padded returns the line padded with spaces to a width, on the left or on the right.
func (l line) padded(width int, behind bool) line {
	space := span{strings.Repeat(" ", max(0, width-l.width())), plainText}
	if behind {
		return append(l[:len(l):len(l)], space)
	}
	return append(line{space}, l...)
}

// text returns the line for a file, or with the escapes of its styles for a terminal.
func (l line) text(colors bool) string {
	var b strings.Builder
	for _, s := range l {
		if colors && s.style != plainText && s.text != "" {
			b.WriteString(looks[s.style].Render(s.text))
		} else {
			b.WriteString(s.text)
		}
	}
	if !colors {
		return strings.TrimRight(b.String(), " ")
	}
	return b.String()
}

// glyphs are the characters that bars are made of.
type glyphs struct {
	sources [4]string // local, remote, storage, fallback
	parts   []string  // of a bar's last cell, from the least to a full one
	rest    string
}

var (
	blockGlyphs = glyphs{
		[4]string{"█", "▓", "▒", "░"}, []string{"▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"}, "·",
	}
	asciiGlyphs = glyphs{[4]string{"#", "+", "-", "!"}, []string{"#"}, "."}
)

// glyphsFor returns the characters that a terminal with this locale can show.
//
// Source: POSIX, 8.2 Internationalization Variables: the first one set counts.
func glyphsFor(getenv func(string) string) glyphs {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := getenv(name); v != "" {
			v = strings.ToLower(v)
			if strings.Contains(v, "utf-8") || strings.Contains(v, "utf8") {
				return blockGlyphs
			}
			break
		}
	}
	return asciiGlyphs
}

// bar returns a bar that is filled to a share in [0, 1].
func (g glyphs) bar(share float64, width int, s style) line {
	steps := int(math.Round(min(max(share, 0), 1) * float64(width*len(g.parts))))
	full, part := steps/len(g.parts), steps%len(g.parts)
	filled := strings.Repeat(g.parts[len(g.parts)-1], full)
	if part > 0 {
		filled += g.parts[part-1]
		full++
	}
	return line{{filled, s}, {strings.Repeat(g.rest, width-full), faint}}
}

// sourceStyles are those of local, remote, storage and fallback.
var sourceStyles = [4]style{green, cyan, yellow, red}

// stack returns a bar of the shares of the four sources, whose sum is 1. A source with a small
// share gets a cell nevertheless, at the expense of the largest.
func (g glyphs) stack(shares [4]float64, width int) line {
	var cells [4]int
	left := width
	for i, share := range shares {
		cells[i] = int(math.Round(share * float64(width)))
		if share > 0 {
			cells[i] = max(1, cells[i])
		}
		left -= cells[i]
	}
	for ; left < 0; left++ {
		*largest(cells[:])--
	}
	*largest(cells[:]) += left
	var l line
	for i, n := range cells {
		l = append(l, span{strings.Repeat(g.sources[i], n), sourceStyles[i]})
	}
	return l
}

func largest(cells []int) *int { return &cells[slices.Index(cells, slices.Max(cells))] }

// shareText formats a share, "-" if there is none.
func shareText(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**share)
}

// bytesText shows a number of bytes.
func bytesText(n float64) string { return humanize.IBytes(uint64(max(0, n))) }

// latencyText formats the seconds of one read, "-" if there was none.
func latencyText(seconds *float64) string {
	switch {
	case seconds == nil:
		return "-"
	case *seconds < 0.9995e-3:
		return fmt.Sprintf("%.0f us", 1e6**seconds)
	case *seconds < 0.9995:
		return fmt.Sprintf("%.1f ms", 1e3**seconds)
	}
	return fmt.Sprintf("%.1f s", *seconds)
}

// countText shows samples per second.
func countText(n float64) string { return humanize.Comma(int64(math.Round(n))) }
