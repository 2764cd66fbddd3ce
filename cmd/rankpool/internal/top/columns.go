package top

import (
	"fmt"
	"slices"
)

// Where a figure deserves a look: training that waits a tenth of its time loses as much, and so near to its memory's
// limit a job is about to be killed.
const (
	stallNotable  = 0.1
	stallBad      = 0.3
	freeBadBytes  = 1 << 30
	gpuBusyShare  = 0.8
	gpuQuietShare = 0.4
)

// columns returns the columns of the table of nodes. A tier has one when there is any.
func (v *view) columns() []column {
	columns := []column{
		{
			title: "rank node", left: true,
			row:   func(r nodeRow) line { return say(plainText, "%4d %s", r.Rank, r.Host) },
			total: func(nodeTotal) line { return say(plainText, "all") },
		},
		{
			title: "batch", order: 13,
			row:   func(r nodeRow) line { return batchCell(r.Epoch, r.Batch, r.Batches) },
			total: func(t nodeTotal) line { return batchCell(t.Epoch, t.Batch, t.Batches) },
		},
		rateColumn("samples/s", 1, func(r nodeRates) line { return say(plainText, "%s", countText(r.SamplesPerSecond)) }),
	}
	if v.bars {
		columns = append(columns, rateColumn("sources", 14, func(r nodeRates) line {
			if r.LocalShare == nil {
				return say(plainText, "-")
			}
			return v.glyphs.stack([4]float64{*r.LocalShare, *r.RemoteShare, *r.StorageShare, *r.FallbackShare}, 20)
		}))
	}
	columns = append(columns,
		rateColumn("local", 3, func(r nodeRates) line { return say(sourceStyles[0], "%s", shareText(r.LocalShare)) }),
		rateColumn("remote", 4, func(r nodeRates) line { return say(sourceStyles[1], "%s", shareText(r.RemoteShare)) }),
		rateColumn("storage", 4, func(r nodeRates) line { return say(sourceStyles[2], "%s", shareText(r.StorageShare)) }),
		rateColumn("fallback", 6, func(r nodeRates) line { return fallbackCell(r.FallbackShare) }))
	if slices.ContainsFunc(v.rows, func(r nodeRow) bool { return r.TierHits > 0 }) {
		columns = append(columns, rateColumn("of tier", 10, func(r nodeRates) line { return say(plainText, "%s", shareText(r.TierShare)) }))
	}
	return append(columns,
		rateColumn("stall", 2, func(r nodeRates) line { return stallCell(r.StallShare) }),
		rateColumn("read/s", 5, func(r nodeRates) line { return say(plainText, "%s", bytesText(r.StorageBytesPerSecond)) }),
		rateColumn("latency", 9, func(r nodeRates) line { return say(plainText, "%s", latencyText(r.StorageLatencySeconds)) }),
		rateColumn("peers/s", 12, func(r nodeRates) line { return say(plainText, "%s", bytesText(r.PeerBytesPerSecond)) }),
		column{
			title: "ready", order: 8,
			row:   func(r nodeRow) line { return say(plainText, "%s", shareText(readyOf(r))) },
			total: func(t nodeTotal) line { return say(plainText, "%s", shareText(t.Ready)) },
		},
		column{
			title: "next", order: 10,
			row:   func(r nodeRow) line { return nextCell(r.NextPlanned) },
			total: func(t nodeTotal) line { return nextCell(t.NextPlanned) },
		},
		column{
			title: "memory", order: 7,
			row:   func(r nodeRow) line { return v.memoryCell(r.UsedBytes, r.SlabBytes) },
			total: func(t nodeTotal) line { return v.memoryCell(t.UsedBytes, t.SlabBytes) },
		},
		column{
			title: "free", order: 11,
			row: func(r nodeRow) line {
				if r.Machine.MemoryLimit == "" {
					return freeCell(nil)
				}
				return freeCell(&r.Machine.MemoryFreeBytes)
			},
			total: func(t nodeTotal) line { return freeCell(t.MemoryFreeBytes) },
		},
		column{
			title: "GPU", order: 3,
			row:   func(r nodeRow) line { return gpuCell(r.GPU) },
			total: func(t nodeTotal) line { return gpuCell(t.GPU) },
		})
}

// rateColumn is a column of what the ranks do in a second; "-" where that is not known.
func rateColumn(title string, order int, cell func(nodeRates) line) column {
	known := func(r *nodeRates) line {
		if r == nil {
			return say(plainText, "-")
		}
		return cell(*r)
	}
	return column{
		title: title, order: order,
		row:   func(r nodeRow) line { return known(r.Rates) },
		total: func(t nodeTotal) line { return known(t.Rates) },
	}
}

func batchCell(epoch, batch, batches int) line {
	if epoch < 0 {
		return say(plainText, "-")
	}
	return say(plainText, "%d: %d/%d", epoch, batch, batches)
}

func fallbackCell(share *float64) line {
	s := plainText
	if share != nil && *share > 0 {
		s = sourceStyles[3]
	}
	return say(s, "%s", shareText(share))
}

func stallCell(share *float64) line {
	s := plainText
	switch {
	case share == nil:
	case *share >= stallBad:
		s = red
	case *share >= stallNotable:
		s = yellow
	}
	return say(s, "%s", shareText(share))
}

func (v *view) memoryCell(used, size int64) line {
	text := fmt.Sprintf("%s/%s", bytesText(float64(used)), bytesText(float64(size)))
	if !v.bars {
		return say(plainText, "%s", text)
	}
	return append(say(plainText, "%s ", text), v.glyphs.bar(float64(used)/float64(max(1, size)), 8, blue)...)
}

func freeCell(free *int64) line {
	switch {
	case free == nil:
		return say(plainText, "-")
	case *free < freeBadBytes:
		return say(red, "%s", bytesText(float64(*free)))
	}
	return say(plainText, "%s", bytesText(float64(*free)))
}

func gpuCell(share *float64) line {
	s := plainText
	switch {
	case share == nil:
		return say(plainText, "-")
	case *share >= gpuBusyShare:
		s = green
	case *share < gpuQuietShare:
		s = yellow
	}
	return say(s, "%.0f %%", 100**share)
}

// nextCell says whether the next epoch is planned, so that the staging window runs on into it.
func nextCell(planned bool) line {
	if planned {
		return say(plainText, "planned")
	}
	return say(plainText, "-")
}

// readyOf returns how ready a rank's staging window is, nil before the first epoch.
func readyOf(r nodeRow) *float64 {
	if r.Epoch < 0 {
		return nil
	}
	return new(r.Ready)
}
