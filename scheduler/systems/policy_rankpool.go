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
		About: "least share of the draws that weighted, pads and subset give a sample, as a part of " +
			"an equal share: no weight exceeds 1/floor",
		Source: "without a floor weighted ends at the accuracy of chance, with 0.2 it trains " +
			"(docs/python.md)",
	}},
}
