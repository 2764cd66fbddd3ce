// Package plots draws results of the simulator, as SVG and PNG. Curves differ by their dashes and
// marks, even in grey, and legends stand beside the data. The bytes of an SVG depend only on the
// arguments.
package plots

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	textSize   = 10 // points
	titleSize  = 12
	legendSize = 9

	margin = 10 // points
	pngDPI = 160
)

var (
	black     = color.Gray{Y: 0}
	gridColor = color.Gray{Y: 225}
)

// A Title stands above a figure: what it shows, and under which circumstances.
type Title struct {
	What, Circumstances string
}

// save draws a figure into path.svg and path.png. The title is drawn above the canvas that paint
// gets, which is at least width by height.
func (t Title) save(path string, width, height vg.Length, paint func(draw.Canvas)) error {
	head, below := newPlot("", "", "").Title.TextStyle, newLegend().TextStyle
	head.XAlign, head.YAlign, below.YAlign = draw.XLeft, draw.YTop, draw.YTop
	width = max(width, head.Width(t.What), below.Width(t.Circumstances)) + 2*margin
	above := head.Height(t.What) + below.Height(t.Circumstances) + 2*margin
	height += above + 2*margin
	svg := vgsvg.New(width, height)
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pngDPI))}
	for ending, canvas := range map[string]interface {
		vg.CanvasSizer
		io.WriterTo
	}{".svg": svg, ".png": png} {
		whole := draw.New(canvas)
		whole.FillPolygon(color.White, []vg.Point{
			whole.Min, {X: whole.Max.X, Y: whole.Min.Y}, whole.Max, {X: whole.Min.X, Y: whole.Max.Y},
		})
		c := draw.Crop(whole, margin, -margin, margin, -margin)
		c.FillText(head, vg.Point{X: c.Min.X, Y: c.Max.Y}, t.What)
		c.FillText(below, vg.Point{X: c.Min.X, Y: c.Max.Y - head.Height(t.What) - vg.Points(3)},
			t.Circumstances)
		paint(draw.Crop(c, 0, 0, 0, -above))
		var file bytes.Buffer
		if _, err := canvas.WriteTo(&file); err != nil {
			return fmt.Errorf("plots: %s%s: %w", path, ending, err)
		}
		if err := os.WriteFile(path+ending, file.Bytes(), 0o644); err != nil {
			return fmt.Errorf("plots: %w", err)
		}
	}
	return nil
}

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// newPlot returns a plot without data, in our fonts.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font = sans(titleSize)
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = sans(textSize)
		axis.Tick.Label.Font = sans(legendSize)
		axis.Label.Padding = vg.Points(4)
		axis.Padding = 0
		axis.Tick.Length = vg.Points(3)
	}
	return p
}

// newLegend returns a legend that is drawn at the top left of its canvas.
func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.TextStyle.Font = sans(legendSize)
	l.Top, l.Left = true, true
	l.ThumbnailWidth = vg.Points(34)
	l.Padding = vg.Points(4)
	return l
}

// legendWidth returns the width of a legend with these names, including the gap before it.
func legendWidth(l plot.Legend, names []string) vg.Length {
	widest := vg.Length(0)
	for _, name := range names {
		widest = max(widest, l.TextStyle.Width("  "+name))
	}
	return l.ThumbnailWidth + widest + legendGap
}

// legendGap is the gap between a plot and its legend.
const legendGap = 14

// legendHeight returns the height of a legend with n names.
func legendHeight(l plot.Legend, n int) vg.Length {
	return vg.Length(n) * (l.TextStyle.Height("system") + l.Padding)
}
