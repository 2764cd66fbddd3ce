package simulate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot/plotter"

	"rankpool/benchmarks/plots"
	"rankpool/benchmarks/simulator"
)

// plot writes the figures into a folder: hits over capacity, time over ranks, sources over an
// epoch. For the second it simulates again, with 1, 2, 4, … ranks.
func (s *study) plot(ctx context.Context, dir string, results []*simulator.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := plots.Hits(filepath.Join(dir, "hits"), s.title("Hits over capacity", s.setting()),
		s.hitCurves(results)); err != nil {
		return err
	}
	// Time and sources are drawn for one capacity, the middle one of those given.
	middle := s.capacities[len(s.capacities)/2]
	room := fmt.Sprintf("capacity %v %%", plotPercent(middle))
	if err := plots.Sources(filepath.Join(dir, "sources"),
		s.title("Where the draws came from, "+s.countedSpan(), s.setting()+", "+room),
		s.areas(results, middle)); err != nil {
		return err
	}
	curves, err := s.timeCurves(ctx, middle)
	if err != nil {
		return err
	}
	if len(curves) == 0 {
		note("no plot of time: in the model of this machine no epoch takes any")
	} else if err := plots.EpochSeconds(filepath.Join(dir, "epoch-seconds"),
		s.title("Time of an epoch over ranks",
			fmt.Sprintf("batch size %d a rank, %s, machine %s", s.base.BatchSize, room, s.machine)),
		curves); err != nil {
		return err
	}
	note("plots are in %s: hits, sources and epoch-seconds, each as .svg and .png", dir)
	return nil
}

func (s *study) title(what, circumstances string) plots.Title {
	draws := "each system's own sampler"
	if s.base.Sampler != "" {
		draws = "sampler " + s.base.Sampler
	}
	return plots.Title{
		What:          what,
		Circumstances: fmt.Sprintf("%s, %s, %s", draws, circumstances, s.trace),
	}
}

// countedSpan describes which epochs are counted.
func (s *study) countedSpan() string {
	if s.base.Epochs-s.base.SkipEpochs == 1 {
		return fmt.Sprintf("epoch %d", s.base.SkipEpochs)
	}
	return fmt.Sprintf("mean of epochs %d to %d", s.base.SkipEpochs, s.base.Epochs-1)
}

// plotPercent converts a share to percent, rounded so that 0.07 is 7.
func plotPercent(share float64) float64 { return float64(int64(share*1e6+0.5)) / 1e4 }

func (s *study) hitCurves(results []*simulator.Result) []plots.Curve {
	var curves []plots.Curve
	for i, system := range s.systems {
		c := plots.Curve{Name: system.Name}
		if system.Name == "min" {
			c.Name, c.Bound = "min (offline bound)", true
			if s.base.Sampler == "" {
				c.Name = fmt.Sprintf("min (bound of %s)", system.Sampler)
			}
		}
		for k := range s.capacities {
			r := results[i*len(s.capacities)+k]
			c.Points = append(c.Points, plotter.XY{
				X: plotPercent(r.Capacity), Y: 100 * float64(r.Hits) / float64(max(r.Draws, 1)),
			})
		}
		// capacities need not be given in order
		slices.SortFunc(c.Points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		curves = append(curves, c)
	}
	return curves
}

// timeCurves simulates every system with 1, 2, 4, … ranks, up to the given number. It returns
// nothing if nothing takes time.
func (s *study) timeCurves(ctx context.Context, capacity float64) ([]plots.Curve, error) {
	var ranks []int
	for r := 1; r < s.base.Ranks; r *= 2 {
		ranks = append(ranks, r)
	}
	ranks = append(ranks, s.base.Ranks)
	var configs []simulator.Config
	for _, r := range ranks {
		configs = append(configs, s.configs(r, []float64{capacity})...)
	}
	results, err := simulateAll(ctx, configs)
	if err != nil {
		return nil, err
	}
	// in the order of hitCurves, so that a system looks the same in both figures
	var curves []plots.Curve
	for _, system := range s.systems {
		curves = append(curves, plots.Curve{Name: system.Name})
	}
	limit := plots.Curve{Name: "bound of any cache", Bound: true}
	for i, r := range ranks {
		of := results[i*len(s.systems) : (i+1)*len(s.systems)]
		bound := of[0].BoundSeconds
		for k, result := range of {
			if result.EpochSeconds <= 0 || result.BoundSeconds <= 0 {
				return nil, nil
			}
			bound = min(bound, result.BoundSeconds)
			curves[k].Points = append(curves[k].Points, plotter.XY{X: float64(r), Y: result.EpochSeconds})
		}
		limit.Points = append(limit.Points, plotter.XY{X: float64(r), Y: bound})
	}
	return append(curves, limit), nil
}

// maxParts is how many parts of an epoch are drawn: as many as a small plot can show.
const maxParts = 40

// areas sums the epochs that are counted, part by part.
func (s *study) areas(results []*simulator.Result, capacity float64) []plots.Area {
	var areas []plots.Area
	for _, r := range results {
		if r.Capacity != capacity {
			continue
		}
		counted := r.Epochs[s.base.SkipEpochs:]
		parts := maxParts
		for _, e := range counted {
			parts = min(parts, len(e.Batches))
		}
		sums := make([][4]int64, parts)
		for _, e := range counted {
			for b, from := range e.Batches {
				sum := &sums[b*parts/len(e.Batches)]
				for k, n := range [4]int32{from.Local, from.Remote, from.Substituted, from.Storage} {
					sum[k] += int64(n)
				}
			}
		}
		area := plots.Area{Name: fmt.Sprintf("%s: %s hits", r.System,
			percentOf(float64(r.Hits), r.Draws))}
		for _, sum := range sums {
			whole := float64(max(sum[0]+sum[1]+sum[2]+sum[3], 1))
			area.Parts = append(area.Parts, plots.Shares{
				Local: float64(sum[0]) / whole, Remote: float64(sum[1]) / whole,
				Substituted: float64(sum[2]) / whole, Storage: float64(sum[3]) / whole,
			})
		}
		areas = append(areas, area)
	}
	return areas
}
