package plots

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

// many returns curves that rise, and the bound above them.
func many(n int) []Curve {
	curves := []Curve{{
		Name: "min (bound)", Bound: true,
		Points: plotter.XYs{{X: 10, Y: 60}, {X: 20, Y: 75}, {X: 40, Y: 90}},
	}}
	for i := range n {
		y := float64(58 - 2*i)
		curves = append(curves, Curve{
			Name:   fmt.Sprintf("system-%d", i),
			Points: plotter.XYs{{X: 10, Y: y}, {X: 20, Y: y + 14}, {X: 40, Y: y + 28}},
		})
	}
	return curves
}

// areas returns systems that get everything from storage at first and from memory in the end.
func areas(n int) []Area {
	var all []Area
	for i := range n {
		area := Area{Name: fmt.Sprintf("system-%d: 50 %% hits", i)}
		for k := range 10 {
			x := float64(k) / 10
			area.Parts = append(area.Parts, Shares{
				Local: x / 2, Remote: x / 4, Substituted: x / 8,
				Storage: 1 - x*7/8,
			})
		}
		all = append(all, area)
	}
	return all
}

// TestFigures checks that each figure exists in both formats, with its texts. Some are drawn twice:
// the SVG has the same bytes.
func TestFigures(t *testing.T) {
	for _, c := range []struct {
		name  string
		paint func(path string) error
		says  []string
		twice bool
	}{
		{
			"hits", func(path string) error { return Hits(path, Title{"Hits", "somehow"}, many(9)) },
			[]string{"min (bound)", "system-8", "hits (% of draws)", ">40<"},
			true,
		},
		{"one point", func(path string) error {
			return Hits(path, Title{"Hits", "somehow"},
				[]Curve{{Name: "lru", Points: plotter.XYs{{X: 100, Y: 100}}}})
		}, []string{"lru", ">100<"}, false},
		{
			"seconds", func(path string) error {
				return EpochSeconds(path, Title{"Time", "somehow"}, many(3))
			},
			[]string{"system-2", "ranks", "(s, in the time model)", ">50<"},
			false,
		},
		{
			"sources", func(path string) error {
				return Sources(path, Title{"Sources", "somehow"}, areas(7))
			},
			[]string{"system-6: 50 % hits", "substituted", "draws (%)"},
			true,
		},
		{"one source", func(path string) error {
			return Sources(path, Title{"Sources", "somehow"}, areas(1))
		}, []string{"system-0: 50 % hits"}, false},
	} {
		svgs := make([][]byte, 1, 2)
		if c.twice {
			svgs = svgs[:2]
		}
		for i := range svgs {
			path := filepath.Join(t.TempDir(), "figure")
			if err := c.paint(path); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			var err error
			if svgs[i], err = os.ReadFile(path + ".svg"); err != nil {
				t.Fatal(err)
			}
			picture, err := os.ReadFile(path + ".png")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := png.Decode(bytes.NewReader(picture)); err != nil {
				t.Errorf("%s: the PNG: %v", c.name, err)
			}
		}
		if !bytes.Equal(svgs[0], svgs[len(svgs)-1]) {
			t.Errorf("%s: drawn twice, the SVGs differ", c.name)
		}
		for _, words := range c.says {
			if !strings.Contains(string(svgs[0]), words) {
				t.Errorf("%s: the SVG does not say %q", c.name, words)
			}
		}
	}
}

func TestFiguresErrors(t *testing.T) {
	if err := Hits(filepath.Join(t.TempDir(), "none", "figure"), Title{"Hits", ""},
		many(1)); err == nil || !strings.HasPrefix(err.Error(), "plots: ") {
		t.Errorf("in a folder that is not there: %v", err)
	}
}

func TestRoundNumbers(t *testing.T) {
	for _, c := range []struct {
		least, most float64
		want        []float64
	}{
		{1.5, 40, []float64{1, 2, 5, 10, 20, 50}},
		{0.02, 0.03, []float64{0.02, 0.05}},
		{7, 8, []float64{5, 10}},
	} {
		if got := roundNumbers(c.least, c.most); !reflect.DeepEqual(got, c.want) {
			t.Errorf("[%v, %v]: %v, want %v", c.least, c.most, got, c.want)
		}
	}
}

// TestEdges stacks the four areas.
func TestEdges(t *testing.T) {
	if got, want := (Shares{Local: 0.5, Remote: 0.25, Substituted: 0.125, Storage: 0.125}).edges(),
		[4]float64{50, 75, 87.5, 100}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestCurvesAreDistinct checks that no two of many systems share colour, mark and dashes, nor mark
// and dashes alone: so they differ in grey too.
func TestCurvesAreDistinct(t *testing.T) {
	seen := map[string]int{}
	for place := range 30 {
		line, points, err := many(1)[1].draw(place)
		if err != nil {
			t.Fatal(err)
		}
		look := fmt.Sprintf("%T %v", points.Shape, line.Dashes)
		if other, found := seen[look]; found {
			t.Errorf("in grey, curve %d looks as curve %d", place, other)
		}
		seen[look] = place
	}
}
