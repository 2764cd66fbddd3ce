package top

import "slices"

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
			column[nodeRow]{"rank node", true, 0, func(r nodeRow) line {
				return styled(plainText, "%4d %s", r.Rank, r.Host)
			}},
			func(nodeTotal) line { return plain("all") },
		},
		stateColumn("batch", 13,
			func(r nodeRow) line { return batchCell(r.Epoch, r.Batch, r.Batches) },
			func(t nodeTotal) line { return batchCell(t.Epoch, t.Batch, t.Batches) }),
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
		stateColumn("ready", 8,
			func(r nodeRow) line { return plain(shareText(readyOf(r))) },
			func(t nodeTotal) line { return plain(shareText(t.Ready)) }),
		stateColumn("next", 10,
			func(r nodeRow) line { return nextCell(r.NextPlanned) },
			func(t nodeTotal) line { return nextCell(t.NextPlanned) }),
		stateColumn("memory", 7,
			func(r nodeRow) line { return v.memoryCell(r.UsedBytes, r.SlabBytes) },
			func(t nodeTotal) line { return v.memoryCell(t.UsedBytes, t.SlabBytes) }),
		stateColumn("free", 11,
			func(r nodeRow) line { return freeCell(freeOf(r)) },
			func(t nodeTotal) line { return freeCell(t.MemoryFreeBytes) }),
		stateColumn("GPU", 3,
			func(r nodeRow) line { return gpuCell(r.GPU) },
			func(t nodeTotal) line { return gpuCell(t.GPU) }),
	})
}

// sourceColumns returns the columns that show where samples came from.
func (v *view) sourceColumns() []nodeColumn {
	var columns []nodeColumn
	if v.bars {
		columns = append(columns, rateColumn("sources", 14, func(r nodeRates) line {
			if r.LocalShare == nil {
				return plain("-")
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

// stateColumn returns a column that shows a state at this moment.
func stateColumn(title string, order int, row func(nodeRow) line, total func(nodeTotal) line,
) nodeColumn {
	return nodeColumn{column[nodeRow]{title, false, order, row}, total}
}

// rateText is a rateColumn of text in one style.
func rateText(title string, order int, s style, text func(nodeRates) string) nodeColumn {
	return rateColumn(title, order, func(r nodeRates) line { return styled(s, "%s", text(r)) })
}

// rateColumn returns a column of rates per second; its cells are "-" where they are not known.
func rateColumn(title string, order int, cell func(nodeRates) line) nodeColumn {
	known := func(r *nodeRates) line {
		if r == nil {
			return plain("-")
		}
		return cell(*r)
	}
	return stateColumn(title, order, func(r nodeRow) line { return known(r.Rates) },
		func(t nodeTotal) line { return known(t.Rates) })
}

func batchCell(epoch, batch, batches int) line {
	if epoch < 0 {
		return plain("-")
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
	text := bytesText(float64(used)) + "/" + bytesText(float64(size))
	if !v.bars {
		return plain(text)
	}
	return append(plain(text+" "), v.glyphs.bar(float64(used)/float64(max(1, size)), 8, blue)...)
}

func freeCell(free *int64) line {
	switch {
	case free == nil:
		return plain("-")
	case *free < freeBadBytes:
		return styled(red, "%s", bytesText(float64(*free)))
	}
	return plain(bytesText(float64(*free)))
}

func gpuCell(share *float64) line {
	s := plainText
	switch {
	case share == nil:
		return plain("-")
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
		return plain("planned")
	}
	return plain("-")
}

// freeOf returns the bytes until a node's memory limit, nil if it has none.
func freeOf(r nodeRow) *int64 {
	if r.Machine.MemoryLimit == "" {
		return nil
	}
	return &r.Machine.MemoryFreeBytes
}

// readyOf returns what share of a rank's staging window is ready, nil before the first epoch.
func readyOf(r nodeRow) *float64 {
	if r.Epoch < 0 {
		return nil
	}
	return new(r.Ready)
}
