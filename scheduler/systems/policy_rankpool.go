package systems

import "rankpool/scheduler"

var rankpoolSystem = System{
	Name: "rankpool", Scorer: "logrank", Sampler: "pads", Policy: "clairvoyant",
	NewPolicy: func(PolicyConfig) scheduler.Policy { return scheduler.NewClairvoyant() },
	About: "race clocks: evicts the sample whose next draw, known or predicted, is farthest; " +
		"bypasses what is needed later still",
	Source: "docs/develop.md",
	Options: []Option{{
		Name: "floor", Default: scheduler.DefaultFloor, Least: 1e-06, Most: 1,
		About: "least share of the draws that weighted, pads and subset give a sample, as a part of " +
			"an equal share: no weight exceeds 1/floor",
		Source: "without a floor weighted ends at the accuracy of chance, with 0.2 it trains " +
			"(docs/python.md)",
	}},
}
