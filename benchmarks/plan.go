package main

import (
	"fmt"
	"strconv"

	"rankpool/benchmarks/planning"
)

var planSection = section{
	name: "plan",
	about: "plan.New, all of an epoch's draws and their consumers, with 1,024 ranks of " +
		"batch size 32 in a process that runs on one core: the median of five, and the most memory " +
		"that the process took for it beyond what it is made from, garbage not yet collected " +
		"included (VmHWM).",
	measure: ratios((*bench).plan),
}

func (b *bench) plan() ([]row, error) {
	samples, title := 14_200_000, "14.2 M samples, 1,024 ranks"
	if b.quick {
		samples, title = 142_000, "142,000 samples, 1,024 ranks"
	}
	var rows []row
	for _, sampler := range []string{"pads", "torch", "uniform"} {
		var result planning.Result
		if err := inChild(nil, &result, "plan", sampler, strconv.Itoa(samples)); err != nil {
			return rows, err
		}
		seconds, bytes := median(result.Seconds), float64(result.PeakBytes)/float64(samples)
		rows = append(rows,
			plainRow("plan of "+title+", one core, "+sampler, fmt.Sprintf("%.2f s", seconds), "", seconds,
				1.5, "1.5 s"),
			plainRow("the same, memory a sample", fmt.Sprintf("%.1f B", bytes), "", bytes, 32, "32 B"))
	}
	return rows, nil
}

// planChild runs in its own process, because peak memory is known only per process.
func planChild(args []string) (any, error) {
	samples, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	return planning.Measure(planning.Config{
		Sampler: args[0], Samples: samples, Ranks: 1024,
		BatchSize: 32, Rounds: 5,
	})
}
