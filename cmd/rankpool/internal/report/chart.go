package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The size of a chart in its own units; a page scales it to its width.
const (
	chartWidth  = 760.0
	chartHeight = 210.0
	marginLeft  = 62.0
	marginRight = 10.0
	marginTop   = 18.0
	marginBelow = 40.0
)

// A chart is the content of a plot. Everything drawn has a class of the page's style sheet, which
// sets its colour on light and dark backgrounds and in print.
type chart struct {
	id, title, desc string
	width, height   float64 // 0: the usual ones
	x, y            axis
	areas           []area
	bars            []bar
	lines           []curve
	marks           []flag
}

// An area lies between low[i] and high[i] from edges[i] to edges[i+1]; NaN leaves a gap.
type area struct {
	class     string
	edges     []float64
	low, high []float64
}

// A bar is a rectangle with a text that is shown under the pointer.
type bar struct {
	class, text            string
	left, right, low, high float64
}

// A curve goes through points; NaN leaves a gap.
type curve struct {
	class string
	x, y  []float64
}

// A flag is a vertical line with a name at its top.
type flag struct {
	class, text string
	at          float64
}

// epochFlag is the class of flags where epochs begin.
const epochFlag = "epoch"

// svg returns the chart as an SVG element for a page.
func (c *chart) svg() template.HTML {
	if c.width == 0 {
		c.width, c.height = chartWidth, chartHeight
	}
	p := &painter{c: c}
	p.f(`<svg viewBox="0 0 %s %s" role="img" aria-labelledby="%s-t %s-d">`, xy(c.width), xy(c.height),
		c.id, c.id)
	p.f(`<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`, c.id, escape(c.title), c.id,
		escape(c.desc))
	p.grid()
	for _, a := range c.areas {
		p.area(a)
	}
	for _, b := range c.bars {
		p.bar(b)
	}
	p.flags()
	for _, l := range c.lines {
		p.curve(l)
	}
	p.axes()
	p.f("</svg>")
	return template.HTML(p.String()) //nolint:gosec // all text in it is escaped
}

// A painter writes the SVG of a chart.
type painter struct {
	strings.Builder
	c *chart
}

func (p *painter) f(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

func (p *painter) px(x float64) float64 {
	return marginLeft + (p.c.width-marginLeft-marginRight)*place(&p.c.x, x)
}

func (p *painter) py(y float64) float64 {
	return p.c.height - marginBelow - (p.c.height-marginTop-marginBelow)*place(&p.c.y, y)
}

// place returns the position of a value on an axis: 0 at its low end, 1 at its high end, and never
// outside.
func place(a *axis, x float64) float64 {
	return max(0, min(1, (x-a.low)/(a.high-a.low)))
}

func (p *painter) text(class, anchor string, x, y float64, s string) {
	p.f(`<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, xy(x), xy(y),
		escape(s))
}

func (p *painter) grid() {
	p.f(`<g class="grid">`)
	for _, t := range p.c.y.ticks {
		p.f(`<path d="M%s %sH%s"/>`, xy(marginLeft), xy(p.py(t.at)), xy(p.c.width-marginRight))
	}
	p.f(`</g>`)
}

func (p *painter) axes() {
	bottom := p.c.height - marginBelow
	p.f(`<path class="axis" d="M%s %sH%s"/>`, xy(marginLeft), xy(bottom), xy(p.c.width-marginRight))
	for _, t := range p.c.x.ticks {
		p.f(`<path class="axis" d="M%s %sv4"/>`, xy(p.px(t.at)), xy(bottom))
		p.text("tick", "middle", p.px(t.at), bottom+16, t.text)
	}
	for _, t := range p.c.y.ticks {
		p.text("tick", "end", marginLeft-6, p.py(t.at)+4, t.text)
	}
	p.text("name", "middle", (marginLeft+p.c.width-marginRight)/2, p.c.height-5, p.c.x.name)
	middle := (marginTop + bottom) / 2
	p.f(`<text class="name" text-anchor="middle" transform="translate(13 %s) rotate(-90)">%s</text>`,
		xy(middle), escape(p.c.y.name))
}

// area draws a run of values as one shape with steps.
func (p *painter) area(a area) {
	var d strings.Builder
	for i := 0; i < len(a.low); {
		if math.IsNaN(a.low[i]) || math.IsNaN(a.high[i]) {
			i++
			continue
		}
		end := i
		for end < len(a.low) && !math.IsNaN(a.low[end]) && !math.IsNaN(a.high[end]) {
			end++
		}
		fmt.Fprintf(&d, "M%s %s", xy(p.px(a.edges[i])), xy(p.py(a.high[i])))
		for k := i; k < end; k++ {
			fmt.Fprintf(&d, "V%sH%s", xy(p.py(a.high[k])), xy(p.px(a.edges[k+1])))
		}
		for k := end - 1; k >= i; k-- {
			fmt.Fprintf(&d, "V%sH%s", xy(p.py(a.low[k])), xy(p.px(a.edges[k])))
		}
		d.WriteString("Z")
		i = end
	}
	p.f(`<path class="area %s" d="%s"/>`, a.class, d.String())
}

func (p *painter) bar(b bar) {
	left, right, top, bottom := p.px(b.left), p.px(b.right), p.py(b.high), p.py(b.low)
	p.f(`<rect class="area %s" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`, b.class,
		xy(left), xy(top), xy(max(0, right-left)), xy(max(0, bottom-top)), escape(b.text))
}

func (p *painter) curve(l curve) {
	var d strings.Builder
	pen := false
	for i, y := range l.y {
		switch {
		case math.IsNaN(y):
			pen = false
		case pen:
			fmt.Fprintf(&d, "L%s %s", xy(p.px(l.x[i])), xy(p.py(y)))
		default:
			// a single point must be visible, too
			fmt.Fprintf(&d, "M%s %sh.1", xy(p.px(l.x[i])), xy(p.py(y)))
			pen = true
		}
	}
	p.f(`<path class="line %s" d="%s"/>`, l.class, d.String())
}

// charWidth is an upper bound for the width of a letter of a flag.
const charWidth = 6.2

// flags draws the vertical lines, and the names that have room: epochs above the plot, events in
// it.
func (p *painter) flags() {
	var free [2]float64
	for _, m := range p.c.marks {
		x, row, y := p.px(m.at), 0, marginTop-6
		if m.class != epochFlag {
			row, y = 1, marginTop+11
		}
		p.f(`<path class="mark %s" d="M%s %sV%s"/>`, m.class, xy(x), xy(marginTop-4),
			xy(p.c.height-marginBelow))
		if width := charWidth * float64(utf8.RuneCountInString(m.text)); x >= free[row] &&
			x+width < p.c.width {
			p.text("flag "+m.class, "start", x+3, y, m.text)
			free[row] = x + width + 8
		}
	}
}

// xy formats a coordinate: a tenth of a unit is finer than paper.
func xy(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

func escape(s string) string { return template.HTMLEscapeString(s) }
