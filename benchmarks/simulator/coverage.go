package simulator

import (
	"slices"

	"rankpool/scheduler/draw"
)

// coverage records which samples a job trained on, and how long it went without some.
type coverage struct {
	begin int // first epoch that counts
	// by sample: the last epoch from begin on in which it was trained on; begin-1 if there is none
	last []int32
	// longest run of epochs, between two in which a sample was trained on or before the first
	gap int
}

func newCoverage(samples, begin int) *coverage {
	c := &coverage{begin: begin, last: make([]int32, samples)}
	for i := range c.last {
		c.last[i] = int32(begin - 1)
	}
	return c
}

// trained records that id was trained on in an epoch; epochs do not decrease.
func (c *coverage) trained(epoch int, id draw.SampleID) {
	if epoch < c.begin {
		return
	}
	c.gap = max(c.gap, epoch-int(c.last[id])-1)
	c.last[id] = int32(epoch)
}

// gapMax returns the longest run of epochs in [begin, end) in which some sample was not trained on.
func (c *coverage) gapMax(end int) int {
	gap := c.gap
	for _, last := range c.last {
		gap = max(gap, end-int(last)-1)
	}
	return gap
}

// distinct returns the number of samples that some job trained on.
func distinct(jobs []*coverage) int64 {
	sum := int64(0)
	for id := range jobs[0].last {
		if slices.ContainsFunc(jobs, func(c *coverage) bool { return int(c.last[id]) >= c.begin }) {
			sum++
		}
	}
	return sum
}
