package plots

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Shares are the shares of draws by source, in a part of an epoch. They sum to 1.
type Shares struct {
	Local, Remote, Substituted, Storage float64
}

// An Area is one system's epoch, cut into parts of equal length in order of time.
type Area struct {
	Name  string // the text above it
	Parts []Shares
}

// sourceNames and sourceColors are in the order in which areas are stacked; the colours get
// lighter.
var (
	sourceNames = [4]string{
		"memory of the consumer's rank", "memory of another rank",
		"another sample (substituted)", "storage",
	}
	sourceColors = [4]color.Color{
		color.RGBA{R: 0x0b, G: 0x3c, B: 0x6f, A: 0xff},
		color.RGBA{R: 0x4a, G: 0x98, B: 0xc9, A: 0xff},
		color.RGBA{R: 0xf9, G: 0xb4, B: 0x5c, A: 0xff},
		color.RGBA{R: 0xee, G: 0xee, B: 0xe6, A: 0xff},
	}
)

// edges returns the heights, in percent, at which the part's four areas end.
func (s Shares) edges() [4]float64 {
	local := 100 * s.Local
	remote := local + float64(100*s.Remote)
	return [4]float64{local, remote, remote + float64(100*s.Substituted), 100}
}

// maxColumns is the most small plots side by side.
const maxColumns = 6

// Sources draws where draws came from in the course of an epoch, a small plot per system, into
// path.svg and path.png. There must be an area, and each must have a part.
func Sources(path string, title Title, areas []Area) error {
	columns := min(maxColumns, len(areas))
	for columns > 1 && (len(areas)+columns-2)/(columns-1) == (len(areas)+columns-1)/columns {
		columns-- // as many rows, and fewer holes in the last
	}
	rows := (len(areas) + columns - 1) / columns
	panels := make([][]*plot.Plot, rows)
	for i, area := range areas {
		panel, err := newPanel(area, i%columns == 0, i+columns >= len(areas))
		if err != nil {
			return err
		}
		panels[i/columns] = append(panels[i/columns], panel)
	}
	for len(panels[rows-1]) < columns {
		panels[rows-1] = append(panels[rows-1], nil)
	}
	width := max(vg.Length(columns)*1.65*vg.Inch+0.6*vg.Inch, 7*vg.Inch)
	height := vg.Length(rows)*1.5*vg.Inch + 0.7*vg.Inch
	return title.save(path, width, height, func(c draw.Canvas) { paintPanels(c, panels, columns) })
}

// newPanel draws one system. Its axes have numbers if it is at the figure's left or bottom.
func newPanel(area Area, left, bottom bool) (*plot.Plot, error) {
	p := newPlot(area.Name, "", "")
	p.Title.TextStyle.Font = sans(legendSize)
	p.Title.Padding = vg.Points(3)
	n := len(area.Parts)
	var below [4]plotter.XYs // of each area, its upper edge in steps
	for i, part := range area.Parts {
		from, to := 100*float64(i)/float64(n), 100*float64(i+1)/float64(n)
		for k, y := range part.edges() {
			below[k] = append(below[k], plotter.XY{X: from, Y: y}, plotter.XY{X: to, Y: y})
		}
	}
	for k := len(below) - 1; k >= 0; k-- { // The upper ones reach down to 0 behind the lower ones.
		outline := append(plotter.XYs{{X: 0, Y: 0}}, below[k]...)
		polygon, err := plotter.NewPolygon(append(outline, plotter.XY{X: 100, Y: 0}))
		if err != nil {
			return nil, err
		}
		polygon.Color, polygon.Width = sourceColors[k], 0
		p.Add(polygon)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 100, 0, 100
	p.X.Tick.Marker, p.Y.Tick.Marker = percentTicks(bottom), percentTicks(left)
	return p, nil
}

func percentTicks(labels bool) plot.ConstantTicks {
	ticks := plot.ConstantTicks{
		{Value: 0, Label: "0"},
		{Value: 50, Label: "50"},
		{Value: 100, Label: "100"},
	}
	for i := range ticks {
		if !labels {
			ticks[i].Label = " " // not "", which would be a small mark
		}
	}
	return ticks
}

// paintPanels draws legend, panels and the axes' names.
func paintPanels(c draw.Canvas, panels [][]*plot.Plot, columns int) {
	paintKey(c)

	axis := newPlot("", "", "").X.Label.TextStyle
	axis.XAlign, axis.YAlign = draw.XCenter, draw.YBottom
	inner := draw.Crop(c, vg.Points(18), 0, vg.Points(18), -vg.Points(22))
	c.FillText(axis, vg.Point{X: (inner.Min.X + inner.Max.X) / 2, Y: c.Min.Y},
		"course of the epoch (% of its global batches)")
	axis.Rotation, axis.YAlign = 1.5707963267948966, draw.YTop // a quarter turn
	c.FillText(axis, vg.Point{X: c.Min.X, Y: (inner.Min.Y + inner.Max.Y) / 2}, "draws (%)")

	tiles := draw.Tiles{Rows: len(panels), Cols: columns, PadX: vg.Points(10), PadY: vg.Points(8)}
	for row, canvases := range plot.Align(panels, tiles, inner) {
		for column, canvas := range canvases {
			if p := panels[row][column]; p != nil {
				p.Draw(canvas)
			}
		}
	}
}

// paintKey draws the four colours with their names in one line at the canvas's top.
func paintKey(c draw.Canvas) {
	style := newLegend().TextStyle
	style.YAlign = draw.YCenter
	box, gap := vg.Points(10), vg.Points(5)
	x, y := c.Min.X, c.Max.Y-box/2
	for k, name := range sourceNames {
		corners := []vg.Point{
			{X: x, Y: y - box/2},
			{X: x + box, Y: y - box/2},
			{X: x + box, Y: y + box/2},
			{X: x, Y: y + box/2},
		}
		c.FillPolygon(sourceColors[k], corners)
		c.StrokeLines(draw.LineStyle{Color: black, Width: vg.Points(0.4)}, append(corners, corners[0]))
		c.FillText(style, vg.Point{X: x + box + gap, Y: y}, name)
		x += box + 4*gap + style.Width(name)
	}
}
