package svg

import (
	"html/template"
	"unicode/utf8"
)

// The size of a ledger's rows, and of the columns beside its bars.
const (
	ledgerRowHeight = 24.0
	ledgerBar       = 15.0
	ledgerTexts     = 18.0 // the height of name and text where they stand above the bar
	ledgerNames     = 110.0
	ledgerColumn    = 100.0 // of texts, at least
	ledgerLetter    = 6.6   // of a text
)

// A Ledger is a plot of horizontal bars, one below the other, each with a name on its left and a
// text on its right; in the narrow form both are above the bar.
type Ledger struct {
	ID, Title, Desc string
	X               Axis
	Rows            []Row
}

// A Row is a bar of parts.
type Row struct {
	Name, Text string
	parts      []Bar // only Left and Right are used
}

// Add appends a part to the bar's end; text is shown under the pointer.
func (r *Row) Add(class string, length float64, text string) {
	left := 0.0
	if n := len(r.parts); n > 0 {
		left = r.parts[n-1].Right
	}
	r.parts = append(r.parts, Bar{Class: class, Text: text, Left: left, Right: left + length})
}

// textsWidth is the width of the column behind the bars.
func (l *Ledger) textsWidth() float64 {
	longest := 0
	for _, row := range l.Rows {
		longest = max(longest, utf8.RuneCountInString(row.Text))
	}
	return max(ledgerColumn, 16+ledgerLetter*float64(longest))
}

// rowHeight is the height of a row of a form, and where in it the bar begins.
func (p *painter) rowHeight() (row, bar float64) {
	if p.narrow() {
		return ledgerRowHeight + ledgerTexts, ledgerTexts
	}
	return ledgerRowHeight, (ledgerRowHeight - ledgerBar) / 2
}

// HTML returns the plot as elements of a page.
func (l *Ledger) HTML() template.HTML {
	height := func(p *painter) float64 {
		row, _ := p.rowHeight()
		return marginBelow + row*float64(len(l.Rows))
	}
	return both(l.ID, l.Title, l.Desc, height, func(p *painter) {
		p.x, p.left, p.right = &l.X, marginRight, marginRight
		if !p.narrow() {
			p.left, p.right = ledgerNames, l.textsWidth()
		}
		p.f(`<g class="grid">`)
		for _, t := range l.X.Ticks {
			p.f(`<path d="M%s 0V%s"/>`, xy(p.px(t.At)), xy(p.bottom()))
		}
		p.f(`</g>`)
		for i, row := range l.Rows {
			p.row(i, row)
		}
		p.xAxis()
	})
}

// row draws the i-th row.
func (p *painter) row(i int, row Row) {
	height, begin := p.rowHeight()
	y := height * float64(i)
	if p.narrow() {
		p.text("row", "start", p.left, y+13, row.Name)
		p.text("row", "end", p.width-p.right, y+13, row.Text)
	} else {
		p.text("row", "end", p.left-8, y+16, row.Name)
		p.text("row", "start", p.width-p.right+8, y+16, row.Text)
	}
	for _, part := range row.parts {
		if part.Right > part.Left {
			p.rect(part.Class, part.Text, p.px(part.Left), y+begin, p.px(part.Right)-p.px(part.Left),
				ledgerBar)
		}
	}
}
