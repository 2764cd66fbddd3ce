// Package svg draws the plots of pages: charts above an axis, and bars below each other.
//
// A plot has two forms, one for windows and paper, and a narrow one for phones, whose labels are as
// large there; the page's style sheet shows one of them. There are no scripts. Everything drawn has
// a class of the style sheet, which sets its colour on light and dark backgrounds and in print.
package svg

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sizes in a plot's own units, which a page scales to its width.
const (
	wide        = 760.0
	narrow      = 380.0
	usualHeight = 210.0
	marginLeft  = 62.0
	marginRight = 10.0
	marginTop   = 18.0
	marginBelow = 40.0
	letter      = 6.2 // an upper bound for the width of one, but for names in bold
)

// both returns a plot in both forms, each drawn by draw. Its id is unique in the page.
func both(
	id, title, desc string, height func(p *painter) float64, draw func(p *painter),
) template.HTML {
	var page strings.Builder
	for _, width := range []float64{wide, narrow} {
		p := &painter{width: width, left: marginLeft, right: marginRight}
		p.height = height(p)
		if p.narrow() {
			p.f(`<svg class="phone" viewBox="0 0 %s %s" role="img" aria-label="%s">`, xy(width),
				xy(p.height), escape(title))
		} else {
			p.f(`<svg class="desk" viewBox="0 0 %s %s" role="img" aria-labelledby="%s-t %s-d">`,
				xy(width), xy(p.height), id, id)
			p.f(`<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`, id, escape(title), id,
				escape(desc))
		}
		draw(p)
		p.f("</svg>")
		page.WriteString(p.String())
	}
	return template.HTML(page.String()) //nolint:gosec // all text in it is escaped
}

// A painter writes a form of a plot.
type painter struct {
	strings.Builder
	width, height float64
	left, right   float64 // margins
	x, y          *Axis
}

func (p *painter) narrow() bool { return p.width == narrow }

func (p *painter) f(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

func (p *painter) px(x float64) float64 {
	return p.left + (p.width-p.left-p.right)*p.x.place(x)
}

func (p *painter) py(y float64) float64 {
	return p.bottom() - (p.bottom()-marginTop)*p.y.place(y)
}

// bottom is where the axis below the plot is.
func (p *painter) bottom() float64 { return p.height - marginBelow }

func (p *painter) text(class, anchor string, x, y float64, s string) {
	p.f(`<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, xy(x), xy(y),
		escape(s))
}

// rect draws a rectangle. Under a pointer, which phones have not, it shows a text.
func (p *painter) rect(class, text string, x, y, width, height float64) {
	p.f(`<rect class="area %s" x="%s" y="%s" width="%s" height="%s"`, class, xy(x), xy(y), xy(width),
		xy(height))
	if p.narrow() {
		p.f(`/>`)
	} else {
		p.f(`><title>%s</title></rect>`, escape(text))
	}
}

// xAxis draws the axis below the plot, with as many labels as have room.
func (p *painter) xAxis() {
	bottom, free := p.bottom(), 0.0
	p.f(`<path class="axis" d="M%s %sH%s"/>`, xy(p.left), xy(bottom), xy(p.width-p.right))
	for _, t := range p.x.Ticks {
		half := textWidth(t.Text) / 2
		p.f(`<path class="axis" d="M%s %sv4"/>`, xy(p.px(t.At)), xy(bottom))
		if x := min(p.px(t.At), p.width-half); x-half >= free {
			p.text("tick", "middle", x, bottom+16, t.Text)
			free = x + half + letter
		}
	}
	p.text("name", "middle", (p.left+p.width-p.right)/2, p.height-5, p.x.Name)
}

// yAxis draws the labels and the name of the axis on the left.
func (p *painter) yAxis() {
	for _, t := range p.y.Ticks {
		p.text("tick", "end", p.left-6, p.py(t.At)+4, t.Text)
	}
	p.f(`<text class="name" text-anchor="middle" transform="translate(13 %s) rotate(-90)">%s</text>`,
		xy((marginTop+p.bottom())/2), escape(p.y.Name))
}

// textWidth is an upper bound for the width of a text.
func textWidth(s string) float64 { return letter * float64(utf8.RuneCountInString(s)) }

// xy formats a coordinate: a tenth of a unit is finer than paper.
func xy(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

func escape(s string) string { return template.HTMLEscapeString(s) }
