package systems

import "rankpool/scheduler"

var rankpoolSystem = System{
	Name: "rankpool", Scorer: "logrank", Sampler: "pads", Policy: "clairvoyant",
	NewPolicy: func(PolicyConfig) scheduler.Policy { return scheduler.NewClairvoyant() },
	About: "race clocks: evicts the sample whose next draw, known or predicted, is farthest; " +
		"bypasses what is needed later still",
	Source: "docs/design.md",
}
