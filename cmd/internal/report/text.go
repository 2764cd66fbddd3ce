package report

import (
	"fmt"
	"math"
	"strconv"

	"rankpool/cmd/internal/svg"
)

// Units of the same quantity, smallest first.
var (
	rates = decimal("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
	// DecimalSizes are sizes as storage counts them.
	DecimalSizes = decimal("B", "kB", "MB", "GB", "TB", "PB")
	sizes        = steps(1, 1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB")
	times        = steps(1e-6, 1000, "µs", "ms", "s")
	amounts      = decimal("", "thousand", "million", "billion")
	share        = steps(0.01, 1, "%")
)

func decimal(names ...string) []svg.Unit { return steps(1, 1000, names...) }

// steps returns units of which the smallest has first base units, and each next one step times as
// many.
func steps(first, step float64, names ...string) []svg.Unit {
	all := make([]svg.Unit, len(names))
	for i, name := range names {
		all[i] = svg.Unit{Name: name, Factor: first * math.Pow(step, float64(i))}
	}
	return all
}

// moment formats a time of the run for a sentence: h:mm:ss.
func moment(at float64) string {
	s := int64(at + 0.5)
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// Span formats a duration in words.
func Span(seconds float64) string {
	switch {
	case math.IsNaN(seconds):
		return svg.Number(seconds)
	case seconds < 1e-3:
		return svg.Number(seconds*1e6) + " µs"
	case seconds < 1:
		return svg.Number(seconds*1e3) + " ms"
	case seconds < 120:
		return svg.Number(seconds) + " s"
	case seconds < 3600:
		s := int64(seconds + 0.5)
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
	s := int64(seconds + 30)
	return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
}

// In formats x, in base units, in the best unit.
func In(units []svg.Unit, x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "–"
	}
	u := svg.Fit(units, x)
	if u.Name == "%" {
		return Percent(x)
	}
	return svg.Number(x/u.Factor) + " " + u.Name
}

// Percent formats a share.
func Percent(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "–"
	}
	p := 100 * x
	if p > 0 && p < 0.05 {
		return "< 0.1 %"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}
