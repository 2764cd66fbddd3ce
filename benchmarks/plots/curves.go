package plots

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Curve is the curve of one system. Points are in order of X.
type Curve struct {
	Name   string
	Points plotter.XYs
	Bound  bool // an upper bound: a thick line without marks
}

// Hits draws hits, in percent of the draws, over capacity, in percent of the data, into path.svg
// and path.png. There must be a curve, and each must have a point.
func Hits(path string, title Title, curves []Curve) error {
	p := newPlot("", "capacity of all ranks together (% of the data set's bytes)", "hits (% of draws)")
	xs, _, most := ranges(curves)
	p.X.Min, p.X.Max = 0, min(100, xs[len(xs)-1]*1.05)
	p.Y.Min, p.Y.Max = 0, min(100, math.Ceil((most+1)/10)*10)
	p.X.Tick.Marker = ticksAt(append([]float64{0}, xs...), same)
	p.Y.Tick.Marker = ticksAt(tens(p.Y.Max), same)
	return title.saveCurves(path, p, curves)
}

// EpochSeconds draws the seconds of an epoch over the number of ranks, both on logarithmic axes,
// into path.svg and path.png. There must be a curve, and each must have a point; all numbers must
// be above 0.
func EpochSeconds(path string, title Title, curves []Curve) error {
	p := newPlot("", "ranks (each with one trainer of the same batch size)",
		"time of an epoch (s, in the time model)")
	xs, least, most := ranges(curves)
	p.X.Min, p.X.Max = math.Log10(xs[0]/1.1), math.Log10(xs[len(xs)-1]*1.1)
	p.X.Tick.Marker = ticksAt(xs, math.Log10)
	low, high := least/1.15, most*1.15
	ticks := roundNumbers(low, high)
	if inside := ticks[1 : len(ticks)-1]; len(inside) >= 2 {
		ticks = inside
	} else {
		low, high = ticks[0], ticks[len(ticks)-1]
	}
	p.Y.Min, p.Y.Max = math.Log10(low), math.Log10(high)
	p.Y.Tick.Marker = ticksAt(ticks, math.Log10)
	return title.saveCurves(path, p, logarithms(curves))
}

// logarithms returns the curves in powers of ten. The library's own logarithmic axes leave room at
// the top for a missing label.
func logarithms(curves []Curve) []Curve {
	all := slices.Clone(curves)
	for i, c := range all {
		all[i].Points = make(plotter.XYs, len(c.Points))
		for k, point := range c.Points {
			all[i].Points[k] = plotter.XY{X: math.Log10(point.X), Y: math.Log10(point.Y)}
		}
	}
	return all
}

// same returns the place of a number on a linear axis.
func same(x float64) float64 { return x }

// ranges returns all X in order, and the least and the largest Y.
func ranges(curves []Curve) (xs []float64, least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		for _, point := range c.Points {
			xs = append(xs, point.X)
			least, most = min(least, point.Y), max(most, point.Y)
		}
	}
	slices.Sort(xs)
	return slices.Compact(xs), least, most
}

// ticksAt marks the numbers at their places.
func ticksAt(numbers []float64, place func(float64) float64) plot.ConstantTicks {
	ticks := make(plot.ConstantTicks, len(numbers))
	for i, number := range numbers {
		ticks[i] = plot.Tick{Value: place(number), Label: strconv.FormatFloat(number, 'g', 6, 64)}
	}
	return ticks
}

// tens returns 0, 10, 20, … up to most.
func tens(most float64) []float64 {
	var numbers []float64
	for n := 0; float64(n) <= most; n += 10 {
		numbers = append(numbers, float64(n))
	}
	return numbers
}

// roundNumbers returns those of …, 1, 2, 5, 10, 20, 50, … that enclose [least, most].
func roundNumbers(least, most float64) []float64 {
	var numbers []float64
	for exponent := -12; exponent <= 15; exponent++ {
		for _, digit := range []string{"1", "2", "5"} {
			// Parsed, so that the number is the same on every machine.
			number, err := strconv.ParseFloat(fmt.Sprintf("%se%d", digit, exponent), 64)
			if err != nil {
				panic(fmt.Sprintf("plots: %v.", err))
			}
			if number <= least {
				numbers = numbers[:0]
			}
			numbers = append(numbers, number)
			if number >= most {
				return numbers
			}
		}
	}
	return numbers
}

var (
	// lineColors are those of Okabe and Ito, "Color Universal Design", 2008, that are dark enough on
	// white, and a grey.
	lineColors = []color.Color{
		color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
		color.RGBA{R: 0xd5, G: 0x5e, A: 0xff},
		color.RGBA{G: 0x9e, B: 0x73, A: 0xff},
		color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
		color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff},
		color.RGBA{R: 0xe6, G: 0x9f, A: 0xff},
		color.Gray{Y: 0x55},
	}
	marks = []draw.GlyphDrawer{
		draw.CircleGlyph{},
		draw.SquareGlyph{},
		draw.PyramidGlyph{},
		draw.CrossGlyph{},
		draw.RingGlyph{},
		draw.BoxGlyph{},
		draw.TriangleGlyph{},
		draw.PlusGlyph{},
	}
	dashes = [][]vg.Length{nil, {6, 2}, {2, 2}, {6, 2, 2, 2}, {10, 3}}
)

// boundStyle is the thick line under all others.
var boundStyle = draw.LineStyle{Color: color.Gray{Y: 0xb0}, Width: vg.Points(6)}

// draw returns the curve's line and marks. The numbers of colours, marks and dashes have no common
// divisor, so all are distinct.
func (c Curve) draw(place int) (*plotter.Line, *plotter.Scatter, error) {
	line, points, err := plotter.NewLinePoints(c.Points)
	if err != nil {
		return nil, nil, fmt.Errorf("plots: curve %s: %w", c.Name, err)
	}
	ink := lineColors[place%len(lineColors)]
	line.LineStyle = draw.LineStyle{
		Color: ink, Width: vg.Points(1.1),
		Dashes: dashes[place%len(dashes)],
	}
	points.GlyphStyle = draw.GlyphStyle{
		Color: ink, Radius: vg.Points(2.8),
		Shape: marks[place%len(marks)],
	}
	if c.Bound {
		line.LineStyle = boundStyle
		points.GlyphStyle = draw.GlyphStyle{
			Color: boundStyle.Color, Radius: boundStyle.Width / 2,
			Shape: draw.CircleGlyph{},
		}
	}
	return line, points, nil
}

// saveCurves draws the curves, the bound below all others, and their legend in the order in which
// they end at the right.
func (t Title) saveCurves(path string, p *plot.Plot, curves []Curve) error {
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)
	type entry struct {
		name       string
		last       float64
		thumbnails []plot.Thumbnailer
	}
	var entries []entry
	var names []string
	for _, bound := range []bool{true, false} {
		for i, c := range curves {
			if c.Bound != bound {
				continue
			}
			line, points, err := c.draw(i)
			if err != nil {
				return err
			}
			p.Add(line, points)
			names = append(names, c.Name)
			entries = append(entries, entry{
				c.Name, c.Points[len(c.Points)-1].Y,
				[]plot.Thumbnailer{line, points},
			})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return -cmp.Compare(a.last, b.last) })
	legend := newLegend()
	for _, e := range entries {
		legend.Add(e.name, e.thumbnails...)
	}
	beside := legendWidth(legend, names)
	height := max(4.2*vg.Inch, legendHeight(legend, len(names)))
	return t.save(path, 6*vg.Inch+beside, height, func(c draw.Canvas) {
		p.Draw(draw.Crop(c, 0, -beside, 0, 0))
		legend.Draw(draw.Crop(c, c.Max.X-c.Min.X-beside+legendGap, 0, 0, 0))
	})
}
