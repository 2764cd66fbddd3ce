package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A tick is a mark on an axis.
type tick struct {
	at   float64
	text string
}

// An axis goes from low to high; its name contains the unit.
type axis struct {
	low, high float64
	name      string
	ticks     []tick
}

// A unit converts base units to printed ones.
type unit struct {
	name   string
	factor float64 // base units in one
}

// Units of the same quantity, smallest first.
var (
	rates = []unit{{"B/s", 1}, {"kB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}}
	sizes = []unit{
		{"B", 1},
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"TiB", 1 << 40},
		{"PiB", 1 << 50},
	}
	decimalSizes = []unit{{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}}
	times        = []unit{{"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}}
	paces        = []unit{{"samples/s", 1}, {"thousand samples/s", 1e3}, {"million samples/s", 1e6}}
	amounts      = []unit{{"", 1}, {"thousand", 1e3}, {"million", 1e6}, {"billion", 1e9}}
	share        = []unit{{"%", 0.01}}
)

// fit returns the largest of the units in which x is at least 1, else the smallest.
func fit(units []unit, x float64) unit {
	best := units[0]
	for _, u := range units[1:] {
		if x >= u.factor {
			best = u
		}
	}
	return best
}

// valueAxis returns an axis from 0 to high or a little more, both in units of u.
func valueAxis(what string, u unit, high float64) axis {
	if !(high > 1e-9) { // nothing to see
		high = 1
	}
	step := niceStep(high / 4)
	a := axis{name: what, high: step * math.Ceil(high/step-1e-9)}
	if u.name != "" {
		a.name += " (" + u.name + ")"
	}
	for i := 0; i < 10 && float64(i)*step <= a.high*(1+1e-9); i++ {
		a.ticks = append(a.ticks, tick{float64(i) * step, number(float64(i) * step)})
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

// timeAxis returns an axis of seconds since the run began, with at most nine ticks.
func timeAxis(seconds float64) axis {
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
	a := axis{high: seconds, name: "time since the run began (" + clockUnit(seconds) + ")"}
	for at := 0.0; at <= seconds; at += step {
		a.ticks = append(a.ticks, tick{at, clockText(at, seconds)})
	}
	return a
}

func clockUnit(seconds float64) string {
	switch {
	case seconds < 120:
		return "s"
	case seconds < 3600:
		return "min:s"
	}
	return "h:min"
}

// clockText formats a time for the axis of a run that takes the given number of seconds.
func clockText(at, seconds float64) string {
	switch s := int64(at + 0.5); {
	case seconds < 120:
		return number(at)
	case seconds < 3600:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	default:
		return fmt.Sprintf("%d:%02d", s/3600, s/60%60)
	}
}

// moment formats a time of the run for a sentence: h:mm:ss.
func moment(at float64) string {
	s := int64(at + 0.5)
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// span formats a duration in words.
func span(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return number(seconds*1e6) + " µs"
	case seconds < 1:
		return number(seconds*1e3) + " ms"
	case seconds < 120:
		return number(seconds) + " s"
	case seconds < 3600:
		s := int64(seconds + 0.5)
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
	s := int64(seconds + 30)
	return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
}

// number formats three digits, and more before the point; NaN is a dash.
func number(x float64) string {
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

// in formats x, in base units, in the best unit.
func in(units []unit, x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "–"
	}
	u := fit(units, x)
	if u.name == "%" {
		return percent(x)
	}
	return number(x/u.factor) + " " + u.name
}

// percent formats a share.
func percent(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "–"
	}
	p := 100 * x
	if p > 0 && p < 0.05 {
		return "< 0.1 %"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}
