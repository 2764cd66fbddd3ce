package report

import (
	"html/template"
	"unicode/utf8"
)

// The size of a ledger's rows, and of the columns beside its bars, in a chart's units.
const (
	ledgerRowHeight = 24.0
	ledgerBar       = 15.0
	ledgerNames     = 110.0
	ledgerTexts     = 100.0 // at least
	ledgerLetter    = 6.6   // of a text
)

// A ledger is a plot of horizontal bars, one below the other, each with a name on its left and a
// text on its right.
type ledger struct {
	id, title, desc string
	x               axis
	rows            []ledgerRow
}

// A ledgerRow is a bar of parts.
type ledgerRow struct {
	name, text string
	parts      []bar // only left and right are used
}

// add appends a part to the bar's end; text is shown under the pointer.
func (r *ledgerRow) add(class string, length float64, text string) {
	left := 0.0
	if n := len(r.parts); n > 0 {
		left = r.parts[n-1].right
	}
	r.parts = append(r.parts, bar{class: class, text: text, left: left, right: left + length})
}

// textsWidth is the width of the column behind the bars.
func (l *ledger) textsWidth() float64 {
	longest := 0
	for _, row := range l.rows {
		longest = max(longest, utf8.RuneCountInString(row.text))
	}
	return max(ledgerTexts, 16+ledgerLetter*float64(longest))
}

// svg returns the plot as an SVG element for a page.
func (l *ledger) svg() template.HTML {
	p := &painter{c: &chart{
		width: chartWidth, height: marginBelow + ledgerRowHeight*float64(len(l.rows)),
		x: l.x, left: ledgerNames, right: l.textsWidth(),
	}}
	p.begin(l.id, l.title, l.desc)
	bottom := p.c.height - marginBelow
	p.f(`<g class="grid">`)
	for _, t := range l.x.ticks {
		p.f(`<path d="M%s 0V%s"/>`, xy(p.px(t.at)), xy(bottom))
	}
	p.f(`</g>`)
	for i, row := range l.rows {
		y := ledgerRowHeight * float64(i)
		p.text("row", "end", ledgerNames-8, y+16, row.name)
		for _, part := range row.parts {
			if part.right > part.left {
				p.rect(part.class, part.text, p.px(part.left), y+(ledgerRowHeight-ledgerBar)/2,
					p.px(part.right)-p.px(part.left), ledgerBar)
			}
		}
		p.text("row", "start", p.px(l.x.high)+8, y+16, row.text)
	}
	p.xAxis()
	p.f("</svg>")
	return template.HTML(p.String()) //nolint:gosec // all text in it is escaped
}
