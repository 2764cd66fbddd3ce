package top

import (
	"fmt"
	"slices"
)

// Values from which a figure is highlighted: training that waits a tenth of its time loses as much,
// and a job so near its memory limit is about to be killed.
const (
	stallNotable  = 0.1
	stallBad      = 0.3
	freeBadBytes  = 1 << 30
	gpuBusyShare  = 0.8
	gpuQuietShare = 0.4
)

// columns returns the columns of the table of nodes. The column of the tier is left out while no
// node has read from one.
func (v *view) columns() []nodeColumn {
	return slices.Concat([]nodeColumn{
		{
			column: column[nodeRow]{"rank node", true, 0, func(r nodeRow) line {
				return styled(plainText, "%4d %s", r.Rank, r.Host)
			}},
			total: func(nodeTotal) line { return styled(plainText, "all") },
		},
		{
			column: column[nodeRow]{"batch", false, 13, func(r nodeRow) line {
				return batchCell(r.Epoch, r.Batch, r.Batches)
			}},
			total: func(t nodeTotal) line { return batchCell(t.Epoch, t.Batch, t.Batches) },
		},
		rateText("samples/s", 1, plainText,
			func(r nodeRates) string { return countText(r.SamplesPerSecond) }),
	}, v.sourceColumns(), []nodeColumn{
		rateColumn("stall", 2, func(r nodeRates) line { return stallCell(r.StallShare) }),
		rateText("read/s", 5, plainText,
			func(r nodeRates) string { return bytesText(r.StorageBytesPerSecond) }),
		rateText("latency", 9, plainText,
			func(r nodeRates) string { return latencyText(r.StorageLatencySeconds) }),
		rateText("peers/s", 12, plainText,
			func(r nodeRates) string { return bytesText(r.PeerBytesPerSecond) }),
	}, v.stateColumns())
}

// sourceColumns returns the columns that show where samples came from.
func (v *view) sourceColumns() []nodeColumn {
	var columns []nodeColumn
	if v.bars {
		columns = append(columns, rateColumn("sources", 14, func(r nodeRates) line {
			if r.LocalShare == nil {
				return styled(plainText, "-")
			}
			return v.glyphs.stack(
				[4]float64{*r.LocalShare, *r.RemoteShare, *r.StorageShare, *r.FallbackShare}, 20)
		}))
	}
	columns = append(columns,
		rateText("local", 3, sourceStyles[0],
			func(r nodeRates) string { return shareText(r.LocalShare) }),
		rateText("remote", 4, sourceStyles[1],
			func(r nodeRates) string { return shareText(r.RemoteShare) }),
		rateText("storage", 4, sourceStyles[2],
			func(r nodeRates) string { return shareText(r.StorageShare) }),
		rateColumn("fallback", 6, func(r nodeRates) line { return fallbackCell(r.FallbackShare) }))
	if slices.ContainsFunc(v.rows, func(r nodeRow) bool { return r.TierHits > 0 }) {
		columns = append(columns, rateText("of tier", 10, plainText,
			func(r nodeRates) string { return shareText(r.TierShare) }))
	}
	if slices.ContainsFunc(v.rows, func(r nodeRow) bool { return r.PackageWrites > 0 }) {
		columns = append(columns, rateText("packages/s", 10, plainText,
			func(r nodeRates) string { return bytesText(r.PackageBytesPerSecond) }))
	}
	return columns
}

// stateColumns returns the columns that show the state of a node at this moment.
func (v *view) stateColumns() []nodeColumn {
	return []nodeColumn{
		{
			column: column[nodeRow]{"ready", false, 8, func(r nodeRow) line {
				return styled(plainText, "%s", shareText(readyOf(r)))
			}},
			total: func(t nodeTotal) line { return styled(plainText, "%s", shareText(t.Ready)) },
		},
		{
			column: column[nodeRow]{"next", false, 10, func(r nodeRow) line {
				return nextCell(r.NextPlanned)
			}},
			total: func(t nodeTotal) line { return nextCell(t.NextPlanned) },
		},
		{
			column: column[nodeRow]{"memory", false, 7, func(r nodeRow) line {
				return v.memoryCell(r.UsedBytes, r.SlabBytes)
			}},
			total: func(t nodeTotal) line { return v.memoryCell(t.UsedBytes, t.SlabBytes) },
		},
		{
			column: column[nodeRow]{"free", false, 11, func(r nodeRow) line {
				if r.Machine.MemoryLimit == "" {
					return freeCell(nil)
				}
				return freeCell(&r.Machine.MemoryFreeBytes)
			}},
			total: func(t nodeTotal) line { return freeCell(t.MemoryFreeBytes) },
		},
		{
			column: column[nodeRow]{"GPU", false, 3, func(r nodeRow) line {
				return gpuCell(r.GPU)
			}},
			total: func(t nodeTotal) line { return gpuCell(t.GPU) },
		},
	}
}

// rateText is a rateColumn of text in one style.
func rateText(title string, order int, s style, text func(nodeRates) string) nodeColumn {
	return rateColumn(title, order, func(r nodeRates) line { return styled(s, "%s", text(r)) })
}

// rateColumn returns a column of rates per second; its cells are "-" where they are not known.
func rateColumn(title string, order int, cell func(nodeRates) line) nodeColumn {
	known := func(r *nodeRates) line {
		if r == nil {
			return styled(plainText, "-")
		}
		return cell(*r)
	}
	return nodeColumn{
		column: column[nodeRow]{title, false, order, func(r nodeRow) line { return known(r.Rates) }},
		total:  func(t nodeTotal) line { return known(t.Rates) },
	}
}

func batchCell(epoch, batch, batches int) line {
	if epoch < 0 {
		return styled(plainText, "-")
	}
	return styled(plainText, "%d: %d/%d", epoch, batch, batches)
}

func fallbackCell(share *float64) line {
	s := plainText
	if share != nil && *share > 0 {
		s = sourceStyles[3]
	}
	return styled(s, "%s", shareText(share))
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
	return styled(s, "%s", shareText(share))
}

func (v *view) memoryCell(used, size int64) line {
	text := fmt.Sprintf("%s/%s", bytesText(float64(used)), bytesText(float64(size)))
	if !v.bars {
		return styled(plainText, "%s", text)
	}
	return append(styled(plainText, "%s ", text),
		v.glyphs.bar(float64(used)/float64(max(1, size)), 8, blue)...)
}

func freeCell(free *int64) line {
	switch {
	case free == nil:
		return styled(plainText, "-")
	case *free < freeBadBytes:
		return styled(red, "%s", bytesText(float64(*free)))
	}
	return styled(plainText, "%s", bytesText(float64(*free)))
}

func gpuCell(share *float64) line {
	s := plainText
	switch {
	case share == nil:
		return styled(plainText, "-")
	case *share >= gpuBusyShare:
		s = green
	case *share < gpuQuietShare:
		s = yellow
	}
	return styled(s, "%.0f %%", 100**share)
}

// nextCell shows whether the next epoch is planned, in which case the staging window extends into
// it.
func nextCell(planned bool) line {
	if planned {
		return styled(plainText, "planned")
	}
	return styled(plainText, "-")
}

// readyOf returns what share of a rank's staging window is ready, nil before the first epoch.
func readyOf(r nodeRow) *float64 {
	if r.Epoch < 0 {
		return nil
	}
	return new(r.Ready)
}
