package svg

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// A Chart is a plot over two axes.
type Chart struct {
	ID, Title, Desc string
	Height          float64 // 0: the usual one
	X, Y            Axis
	Ranges          []Area // between points, not in steps
	Areas           []Area
	Bars            []Bar
	Lines           []Curve
	Marks           []Flag
}

// An Area lies between Low[i] and High[i] from Edges[i] to Edges[i+1]; NaN leaves a gap.
type Area struct {
	Class     string
	Edges     []float64
	Low, High []float64
}

// A Bar is a rectangle with a text that is shown under the pointer.
type Bar struct {
	Class, Text            string
	Left, Right, Low, High float64
}

// A Curve goes through points; NaN leaves a gap.
type Curve struct {
	Class  string
	X, Y   []float64
	Points bool   // are marked
	Name   string // at its end, where that has room; "": none
}

// Add appends a point.
func (l *Curve) Add(x, y float64) {
	l.X, l.Y = append(l.X, x), append(l.Y, y)
}

// A Flag is a vertical line with a name at its top.
type Flag struct {
	Class, Text string
	At          float64
}

// Epoch is the class of flags where epochs begin.
const Epoch = "epoch"

// HTML returns the chart as elements of a page.
func (c *Chart) HTML() template.HTML {
	height := func(*painter) float64 { return cmp.Or(c.Height, usualHeight) }
	return both(c.ID, c.Title, c.Desc, height, func(p *painter) {
		p.x, p.y = &c.X, &c.Y
		named := !p.narrow() && slices.ContainsFunc(c.Lines, func(l Curve) bool { return l.Name != "" })
		if named {
			p.right = endNames
		}
		p.grid()
		for _, a := range c.Ranges {
			p.between(a)
		}
		for _, a := range c.Areas {
			p.area(a)
		}
		for _, b := range c.Bars {
			left, right, top, bottom := p.px(b.Left), p.px(b.Right), p.py(b.High), p.py(b.Low)
			p.rect(b.Class, b.Text, left, top, max(0, right-left), max(0, bottom-top))
		}
		p.flags(c.Marks)
		for _, l := range c.Lines {
			p.curve(l)
		}
		if named {
			p.endNames(c.Lines)
		}
		p.xAxis()
		p.yAxis()
	})
}

func (p *painter) grid() {
	p.f(`<g class="grid">`)
	for _, t := range p.y.Ticks {
		p.f(`<path d="M%s %sH%s"/>`, xy(p.left), xy(p.py(t.At)), xy(p.width-p.right))
	}
	p.f(`</g>`)
}

// between draws the range between two values at each point as one shape; edges are the points.
func (p *painter) between(a Area) {
	var d strings.Builder
	pen := "M"
	for i, x := range a.Edges {
		fmt.Fprintf(&d, "%s%s %s", pen, xy(p.px(x)), xy(p.py(a.High[i])))
		pen = "L"
	}
	for i, x := range slices.Backward(a.Edges) {
		fmt.Fprintf(&d, "L%s %s", xy(p.px(x)), xy(p.py(a.Low[i])))
	}
	p.f(`<path class="range %s" d="%sZ"/>`, a.Class, d.String())
}

// area draws a run of values as one shape with steps.
func (p *painter) area(a Area) {
	var d strings.Builder
	known := func(i int) bool {
		return i < len(a.Low) && !math.IsNaN(a.Low[i]) && !math.IsNaN(a.High[i])
	}
	for i := 0; i < len(a.Low); i++ {
		end := i
		for known(end) {
			end++
		}
		if end == i {
			continue
		}
		fmt.Fprintf(&d, "M%s %s", xy(p.px(a.Edges[i])), xy(p.py(a.High[i])))
		for k := i; k < end; k++ {
			fmt.Fprintf(&d, "V%sH%s", xy(p.py(a.High[k])), xy(p.px(a.Edges[k+1])))
		}
		for k := end - 1; k >= i; k-- {
			fmt.Fprintf(&d, "V%sH%s", xy(p.py(a.Low[k])), xy(p.px(a.Edges[k])))
		}
		d.WriteString("Z")
		i = end
	}
	p.f(`<path class="area %s" d="%s"/>`, a.Class, d.String())
}

func (p *painter) curve(l Curve) {
	var d strings.Builder
	pen := false
	for i, y := range l.Y {
		switch {
		case math.IsNaN(y):
			pen = false
		case pen:
			fmt.Fprintf(&d, "L%s %s", xy(p.px(l.X[i])), xy(p.py(y)))
		default:
			// a single point must be visible, too
			fmt.Fprintf(&d, "M%s %sh.1", xy(p.px(l.X[i])), xy(p.py(y)))
			pen = true
		}
	}
	p.f(`<path class="line %s" d="%s"/>`, l.Class, d.String())
	for i, y := range l.Y {
		if l.Points && !p.narrow() && !math.IsNaN(y) {
			p.f(`<circle class="dot %s" cx="%s" cy="%s" r="2.6"><title>%s: %s</title></circle>`, l.Class,
				xy(p.px(l.X[i])), xy(p.py(y)), escape(l.Name), Number(y))
		}
	}
}

// Names at the ends of curves: the margin that they need, and their distance.
const (
	endNames = 92.0
	endStep  = 12.0
)

// endNames writes names behind the ends of curves, none over another.
func (p *painter) endNames(lines []Curve) {
	type name struct {
		class, text string
		y           float64
	}
	var names []name
	for _, l := range lines {
		if l.Name != "" && len(l.Y) > 0 {
			names = append(names, name{l.Class, l.Name, p.py(l.Y[len(l.Y)-1])})
		}
	}
	slices.SortStableFunc(names, func(a, b name) int { return cmp.Compare(a.y, b.y) })
	for i := range names {
		if i > 0 {
			names[i].y = max(names[i].y, names[i-1].y+endStep)
		}
	}
	lowest := p.bottom()
	for i := range slices.Backward(names) {
		names[i].y = min(names[i].y, lowest)
		lowest = names[i].y - endStep
	}
	for _, n := range names {
		p.text("end "+n.class, "start", p.width-p.right+8, n.y+4, n.text)
	}
}

// flags draws the vertical lines, and the names that have room: epochs above the plot, events in
// it.
func (p *painter) flags(marks []Flag) {
	var free [2]float64
	for _, m := range marks {
		x, row, y := p.px(m.At), 0, marginTop-6
		if m.Class != Epoch {
			row, y = 1, marginTop+11
		}
		p.f(`<path class="mark %s" d="M%s %sV%s"/>`, m.Class, xy(x), xy(marginTop-4), xy(p.bottom()))
		if end := x + textWidth(m.Text); x >= free[row] && end < p.width {
			p.text("flag "+m.Class, "start", x+3, y, m.Text)
			free[row] = end + 8
		}
	}
}
