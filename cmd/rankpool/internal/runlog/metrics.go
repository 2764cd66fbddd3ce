package runlog

import (
	"maps"
	"slices"
)

// MetricNames returns the names of the metrics that training reported in any of the epochs, in
// order.
func MetricNames(epochs []Epoch) []string {
	names := map[string]bool{}
	for i := range epochs {
		for name := range epochs[i].Metrics {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
