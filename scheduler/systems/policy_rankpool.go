package systems

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

var rankpoolSystem = System{
	Name: "rankpool", Scorer: "logrank", Sampler: "pads", Policy: "clairvoyant",
	NewPolicy: func(PolicyConfig) stager.Policy { return stager.NewClairvoyant() },
	About: "race clocks: evicts the sample whose next draw, known or predicted, is farthest; " +
		"bypasses what is needed later still",
	Source: "docs/develop.md",
	Options: []Option{{
		Name: "floor", Default: draw.DefaultFloor, Least: 1e-06, Most: 1,
		About: "least share of the draws that weighted, pads, subset and thrifty give a sample, as a " +
			"part of an equal share: no weight of weighted, pads and subset exceeds 1/floor",
		Source: "without a floor weighted ends at the accuracy of chance, with 0.2 it trains as " +
			"uniform does (TestWeightedTrains; 10,000 images: 86.3 and 86.7 %)",
	}, {
		Name: "reads", Default: 0.25, Least: 0, Most: 1,
		About: "storage reads a draw that thrifty makes after the first epoch; 1: it draws as uniform; " +
			"0: as few as leave an epoch's mean gradient as steady as that of uniform draws with " +
			"replacement",
		Source: "with a room of 0.2 accuracy is that of a permutation (benchmarks/results/frontier.md)",
	}, {
		Name: "room", Default: 0, Least: 0, Most: 1,
		About: "size of the store that thrifty counts with, as a share of the data set; " +
			"0: the memory of all ranks when training first starts",
		Source: "what ranks hold later must not change the draws",
	}, {
		Name: "draws", Default: 1, Least: 0.01, Most: 1,
		About:  "draws of thrifty in an epoch, as a share of the samples",
		Source: "an epoch of the samplers without this option draws as often as there are samples",
	}},
}
