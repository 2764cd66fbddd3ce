package svg

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Tick is a mark on an axis.
type Tick struct {
	At   float64
	Text string
}

// An Axis goes from Low to High; its name contains the unit.
type Axis struct {
	Low, High float64
	Name      string
	Ticks     []Tick
}

// place returns the position of a value: 0 at the low end, 1 at the high end, and never outside.
func (a *Axis) place(x float64) float64 {
	return max(0, min(1, (x-a.Low)/(a.High-a.Low)))
}

// A Unit converts base units to printed ones.
type Unit struct {
	Name   string
	Factor float64 // base units in one
}

// Fit returns the largest of the units, smallest first, in which x is at least 1, else the
// smallest.
func Fit(units []Unit, x float64) Unit {
	best := units[0]
	for _, u := range units[1:] {
		if x >= u.Factor {
			best = u
		}
	}
	return best
}

// ValueAxis returns an axis from 0 to high or a little more, both in units of u.
func ValueAxis(what string, u Unit, high float64) Axis {
	if !(high > 1e-9) { // nothing to see
		high = 1
	}
	step := niceStep(high / 4)
	a := Axis{Name: what, High: step * math.Ceil(high/step-1e-9)}
	if u.Name != "" {
		a.Name += " (" + u.Name + ")"
	}
	for i := 0; i < 10 && float64(i)*step <= a.High*(1+1e-9); i++ {
		a.Ticks = append(a.Ticks, Tick{float64(i) * step, Number(float64(i) * step)})
	}
	return a
}

// RangeAxis returns an axis that need not begin at 0.
func RangeAxis(name string, low, high float64) Axis {
	high = max(high, low+1e-6*math.Abs(low), low+1e-9) // all may have the same value
	a := Axis{Low: low, High: high, Name: name}
	step := niceStep((high - low) / 8)
	first := math.Ceil(low / step)
	for i := 0.0; i < 10 && (first+i)*step <= high; i++ {
		a.Ticks = append(a.Ticks, Tick{(first + i) * step, Number((first + i) * step)})
	}
	return a
}

// IndexAxis returns an axis of whole numbers [low, high), each 1 wide.
func IndexAxis(name string, low, high int) Axis {
	a := Axis{Low: float64(low), High: float64(max(high, low+1)), Name: name}
	step := 1
	for (high-low)/step > 16 {
		step = int(niceStep(float64(step + 1)))
	}
	for i := (low + step - 1) / step * step; i < high; i += step {
		a.Ticks = append(a.Ticks, Tick{float64(i) + 0.5, fmt.Sprint(i)})
	}
	return a
}

// niceStep returns the least of …, 1, 2, 5, 10, … that is not below x.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, digit := range []float64{1, 2, 5} {
		if digit*power >= x*(1-1e-9) {
			return digit * power
		}
	}
	return 10 * power
}

var timeSteps = []float64{
	0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600,
	6 * 3600, 12 * 3600,
}

// TimeAxis returns an axis of seconds since the beginning of what, with at most nine ticks.
func TimeAxis(what string, seconds float64) Axis {
	seconds = max(seconds, 0.1)
	step := timeSteps[0]
	for _, s := range timeSteps {
		if step = s; seconds/s <= 8 {
			break
		}
	}
	for seconds/step > 8 { // days
		step *= 2
	}
	unit, format := clock(seconds)
	a := Axis{High: seconds, Name: what + " (" + unit + ")"}
	for at := 0.0; at <= seconds; at += step {
		a.Ticks = append(a.Ticks, Tick{at, format(at)})
	}
	return a
}

// clock returns how the axis of a run that takes so many seconds shows times.
func clock(seconds float64) (unit string, format func(at float64) string) {
	switch {
	case seconds < 120:
		return "s", Number
	case seconds < 3600:
		return "min:s", func(at float64) string {
			s := int64(at + 0.5)
			return fmt.Sprintf("%d:%02d", s/60, s%60)
		}
	}
	return "h:min", func(at float64) string {
		s := int64(at + 0.5)
		return fmt.Sprintf("%d:%02d", s/3600, s/60%60)
	}
}

// Number formats three digits, and more before the point; NaN is a dash.
func Number(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "–"
	case x == 0:
		return "0"
	case math.Abs(x) >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case math.Abs(x) < 0.001:
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(x)))))
	text := strconv.FormatFloat(x, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
