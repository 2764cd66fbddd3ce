package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
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
	left, right     float64 // margins, 0: the usual ones
	x, y            axis
	ranges          []area // between points, not in steps
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
	class  string
	x, y   []float64
	points bool   // are marked
	name   string // at its end, "": none
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
	if slices.ContainsFunc(c.lines, func(l curve) bool { return l.name != "" }) {
		c.right = endNames
	}
	p := &painter{c: c}
	p.begin(c.id, c.title, c.desc)
	p.grid()
	for _, a := range c.ranges {
		p.between(a)
	}
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
	p.endNames()
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

// begin writes the element's beginning.
func (p *painter) begin(id, title, desc string) {
	p.c.left, p.c.right = cmp.Or(p.c.left, marginLeft), cmp.Or(p.c.right, marginRight)
	p.f(`<svg viewBox="0 0 %s %s" role="img" aria-labelledby="%s-t %s-d">`, xy(p.c.width),
		xy(p.c.height), id, id)
	p.f(`<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`, id, escape(title), id, escape(desc))
}

func (p *painter) px(x float64) float64 {
	return p.c.left + (p.c.width-p.c.left-p.c.right)*place(&p.c.x, x)
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
		p.f(`<path d="M%s %sH%s"/>`, xy(p.c.left), xy(p.py(t.at)), xy(p.c.width-p.c.right))
	}
	p.f(`</g>`)
}

func (p *painter) axes() {
	p.xAxis()
	for _, t := range p.c.y.ticks {
		p.text("tick", "end", p.c.left-6, p.py(t.at)+4, t.text)
	}
	middle := (marginTop + p.c.height - marginBelow) / 2
	p.f(`<text class="name" text-anchor="middle" transform="translate(13 %s) rotate(-90)">%s</text>`,
		xy(middle), escape(p.c.y.name))
}

// xAxis draws the axis below the plot.
func (p *painter) xAxis() {
	bottom := p.c.height - marginBelow
	p.f(`<path class="axis" d="M%s %sH%s"/>`, xy(p.c.left), xy(bottom), xy(p.c.width-p.c.right))
	for _, t := range p.c.x.ticks {
		p.f(`<path class="axis" d="M%s %sv4"/>`, xy(p.px(t.at)), xy(bottom))
		p.text("tick", "middle", p.px(t.at), bottom+16, t.text)
	}
	p.text("name", "middle", (p.c.left+p.c.width-p.c.right)/2, p.c.height-5, p.c.x.name)
}

// between draws the range between two values at each point as one shape; edges are the points.
func (p *painter) between(a area) {
	var d strings.Builder
	pen := "M"
	for i, x := range a.edges {
		fmt.Fprintf(&d, "%s%s %s", pen, xy(p.px(x)), xy(p.py(a.high[i])))
		pen = "L"
	}
	for i, x := range slices.Backward(a.edges) {
		fmt.Fprintf(&d, "L%s %s", xy(p.px(x)), xy(p.py(a.low[i])))
	}
	p.f(`<path class="range %s" d="%sZ"/>`, a.class, d.String())
}

// area draws a run of values as one shape with steps.
func (p *painter) area(a area) {
	var d strings.Builder
	known := func(i int) bool {
		return i < len(a.low) && !math.IsNaN(a.low[i]) && !math.IsNaN(a.high[i])
	}
	for i := 0; i < len(a.low); i++ {
		end := i
		for known(end) {
			end++
		}
		if end == i {
			continue
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
	p.rect(b.class, b.text, left, top, max(0, right-left), max(0, bottom-top))
}

// rect draws a rectangle in the chart's units, with a text that is shown under the pointer.
func (p *painter) rect(class, text string, x, y, width, height float64) {
	p.f(`<rect class="area %s" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`, class,
		xy(x), xy(y), xy(width), xy(height), escape(text))
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
	for i, y := range l.y {
		if l.points && !math.IsNaN(y) {
			p.f(`<circle class="dot %s" cx="%s" cy="%s" r="2.6"><title>%s: %s</title></circle>`, l.class,
				xy(p.px(l.x[i])), xy(p.py(y)), escape(l.name), number(y))
		}
	}
}

// Names at the ends of curves: the margin that they need, and their distance.
const (
	endNames = 92.0
	endStep  = 12.0
)

// endNames writes names behind the ends of curves, none over another.
func (p *painter) endNames() {
	type name struct {
		class, text string
		y           float64
	}
	var names []name
	for _, l := range p.c.lines {
		if l.name != "" && len(l.y) > 0 {
			names = append(names, name{l.class, l.name, p.py(l.y[len(l.y)-1])})
		}
	}
	slices.SortStableFunc(names, func(a, b name) int { return cmp.Compare(a.y, b.y) })
	for i := range names {
		if i > 0 {
			names[i].y = max(names[i].y, names[i-1].y+endStep)
		}
	}
	lowest := p.c.height - marginBelow
	for i := range slices.Backward(names) {
		names[i].y = min(names[i].y, lowest)
		lowest = names[i].y - endStep
	}
	for _, n := range names {
		p.text("end "+n.class, "start", p.c.width-p.c.right+8, n.y+4, n.text)
	}
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
