package svg

import (
	"regexp"
	"strings"
	"testing"
)

func TestAxes(t *testing.T) {
	for _, high := range []float64{1e-12, 1e-6, 0.3, 1, 7, 99, 100, 12345, 1e15, 1e300} {
		a := ValueAxis("x", Unit{"u", 1}, high)
		if a.High < high*(1-1e-9) && high > 1e-9 || len(a.Ticks) < 3 || len(a.Ticks) > 7 {
			t.Errorf("up to %g: high %g, %d ticks", high, a.High, len(a.Ticks))
		}
	}
	for _, seconds := range []float64{0, 0.3, 1, 59, 61, 3599, 3601, 86400, 1e7, 1e10} {
		a := TimeAxis("time", seconds)
		if len(a.Ticks) < 2 || len(a.Ticks) > 10 {
			t.Errorf("%v s: %d ticks", seconds, len(a.Ticks))
		}
	}
	for x, want := range map[float64]string{1234.5: "1234", 0.1: "0.1", 99.99: "100", 0: "0"} {
		if got := Number(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}

// TestLabelsHaveRoom checks that in neither form a label of an axis overlaps the next, and that
// only the wide one has what a pointer shows and names that take room from the plot.
func TestLabelsHaveRoom(t *testing.T) {
	c := Chart{
		ID: "plot", Title: "<plot>",
		X: IndexAxis("epoch", 100_000, 100_016), Y: ValueAxis("y", Unit{"", 1}, 1),
		Bars:  []Bar{{Text: "a bar", Left: 100_002, Right: 100_003, High: 1}},
		Lines: []Curve{{Name: "name", X: []float64{100_001, 100_005}, Y: []float64{0, 1}, Points: true}},
	}
	desk, phone, found := strings.Cut(string(c.HTML()), `<svg class="phone"`)
	if !found {
		t.Fatal("there is no form for phones")
	}
	shown := regexp.MustCompile(`>1000\d\d</text>`)
	if n := len(shown.FindAllString(desk, -1)); n < 8 || n > 16 {
		t.Errorf("%d labels in the wide form", n)
	}
	if n := len(shown.FindAllString(phone, -1)); n < 4 || n > 8 {
		t.Errorf("%d labels in the narrow form", n)
	}
	for _, what := range []string{"a bar", "<circle", "name</text>"} {
		if !strings.Contains(desk, what) || strings.Contains(phone, what) {
			t.Errorf("%q is not in the wide form alone", what)
		}
	}
}

// TestTextsFit checks that the column behind a ledger's bars is as wide as its longest text.
func TestTextsFit(t *testing.T) {
	for text, want := range map[string]float64{
		"12 %":              ledgerColumn,
		"82.4 MB ± 12.9 kB": 16 + 17*ledgerLetter,
	} {
		l := Ledger{Rows: []Row{{Text: "1 s"}, {Text: text}}}
		if got := l.textsWidth(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
