package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize"

	"rankpool/cmd/internal/runlog"
	"rankpool/mpicache/stats"
)

// Why a plot may be missing.
const (
	noNodeLines = "The log has no lines about nodes: it was written with --tune log-every=0."
	noMeasuring = "The log has no storage statistics: the ranks of this run did not measure them."
	noGPUs      = "No GPU was seen: the nodes have none, the driver's library was not found, or it " +
		"may not be asked."
	silentGPUs = "The nodes' GPUs do not report their utilisation: they are divided (MIG), or may " +
		"not be asked."
	noImportance = "The log has no distribution of importance: it was written with --tune " +
		"log-every=0, or the sampler has no scores."
	noTraining = "No trainer has requested a sample."
)

// figures makes the page's plots.
func figures(run *runlog.Run) []*Figure {
	var t *track
	if len(run.Timeline.Bins) > 0 {
		t = timeTrack(run)
	}
	return []*Figure{
		sources(t), stall(t), gpus(run, t), throughput(t), latency(t), importance(run), balance(run),
	}
}

// sources shows where samples came from.
func sources(t *track) *Figure {
	f := &Figure{
		ID: "sources", Title: "Where samples came from",
		Caption: "Of the samples that trainers were given, the part from each source. The more blue, " +
			"the less storage was waited for.",
	}
	if t == nil {
		return f.Without(noNodeLines)
	}
	all := t.sums()
	if all.Draws() == 0 {
		return f.Without(noTraining)
	}
	if all[stats.TierHits] > 0 {
		f.Caption += " Hits from a node's disk (tier) are taken off both kinds of memory hits in " +
			"proportion."
	}
	f.Caption += packageText(&all)
	f.drawStack(t, "samples", sourceSeries(&all))
	return f
}

// packageText describes how much was read and written in packages, "" if none were.
func packageText(all *stats.Sums) string {
	if all[stats.PackageWrites] == 0 {
		return ""
	}
	return fmt.Sprintf(" %s packages of samples (%s) were written, and %s (%s) read.",
		humanize.Comma(int64(all[stats.PackageWrites])),
		humanize.IBytes(uint64(all[stats.PackageWriteBytes])),
		humanize.Comma(int64(all[stats.PackageReads])),
		humanize.IBytes(uint64(all[stats.PackageReadBytes])))
}

// sourceSeries returns the shown sources, as shares of the draws.
func sourceSeries(all *stats.Sums) []series {
	var list []series
	for _, c := range shownSources(all) {
		list = append(list, series{Key: SourceKey(c), value: func(b *runlog.Bin, _ float64) float64 {
			return stats.Ratio(source(&b.Sums, c), b.Draws())
		}})
	}
	return list
}

// sourcesOf are where samples come from.
var sourcesOf = []stats.Counter{
	stats.HitsLocal, stats.HitsRemote, stats.TierHits, stats.Substituted, stats.StorageReads,
	stats.FallbackReads,
}

// shownSources returns the sources in a legend: four always, the others if they gave samples.
func shownSources(all *stats.Sums) []stats.Counter {
	return slices.DeleteFunc(slices.Clone(sourcesOf), func(c stats.Counter) bool {
		return (c == stats.TierHits || c == stats.Substituted) && all[c] == 0
	})
}

// SourceKey explains a source.
func SourceKey(c stats.Counter) Key {
	return Key{Class: stats.Table[c].Source, Name: stats.Table[c].Place}
}

// source returns the number of samples from a source. Ranks count hits of a tier as local or remote
// hits too, so these are reduced.
func source(s *stats.Sums, q stats.Counter) float64 {
	if q == stats.HitsLocal || q == stats.HitsRemote {
		if hits := s.Hits(); hits > 0 {
			return s[q] * max(0, 1-s[stats.TierHits]/hits)
		}
	}
	if q == stats.TierHits {
		return min(s[q], s.Hits())
	}
	return s[q]
}

// stall shows how long training waited.
func stall(t *track) *Figure {
	f := &Figure{
		ID: "stall", Title: "Time in which training waited for samples",
		Caption: "Of the trainers' time in epochs, the part that they spent waiting.",
	}
	if t == nil {
		return f.Without(noNodeLines)
	}
	if t.sums()[stats.TrainSeconds] == 0 {
		return f.Without(noTraining)
	}
	if math.IsNaN(t.sums()[stats.StallSeconds]) {
		return f.Without(notMeasured)
	}
	lines := []series{line("a", "all trainers", waiting)}
	if t.seen(runlog.StallShare) {
		f.Caption += " The worst node holds up all others in each step."
		lines = append(lines, line("b", "the worst node", func(b *runlog.Bin, _ float64) float64 {
			return min(1, highest(runlog.StallShare)(b, 0))
		}))
	}
	f.drawLines(t, "waiting", share, lines)
	return f
}

func waiting(b *runlog.Bin, _ float64) float64 { return waited(&b.Sums) }

// throughput shows the throughput of storage and peers.
func throughput(t *track) *Figure {
	f := &Figure{
		ID: "throughput", Title: "Throughput of storage and of peers",
		Caption: "Bytes that all ranks together read from storage, mostly ahead of use, and that they " +
			"got from each other's memory.",
	}
	if t == nil {
		return f.Without(noNodeLines)
	}
	all := t.sums()
	rate := func(class, name string, q stats.Counter) series {
		return line(class, name, func(b *runlog.Bin, seconds float64) float64 {
			return known(b, b.Sums[q]/seconds)
		})
	}
	lines := []series{
		rate("b", "storage", stats.ReadBytes), rate("a", "peers' memory", stats.PeerBytes),
	}
	if all[stats.FallbackBytes] > 0 {
		lines = append(lines, rate("c", "fallback, by trainers", stats.FallbackBytes))
	}
	f.drawLines(t, "throughput", rates, lines)
	return f
}

// latency shows how long a read of storage took.
func latency(t *track) *Figure {
	f := &Figure{
		ID: "latency", Title: "Latency of storage",
		Caption: "Mean time of a read of one sample. The worst node far above the others points at " +
			"that node's link or at one storage target.",
	}
	if t == nil {
		return f.Without(noNodeLines)
	}
	if t.sums()[stats.ReadCount] == 0 {
		return f.Without(noMeasuring)
	}
	f.drawLines(t, "latency", times, []series{
		line("a", "all nodes", func(b *runlog.Bin, _ float64) float64 {
			return b.Share(stats.ReadSeconds, stats.ReadCount)
		}),
		line("b", "the worst node", highest(runlog.ReadLatency)),
	})
	return f
}

// gpus shows utilisation beside stalls.
func gpus(run *runlog.Run, t *track) *Figure {
	f := &Figure{
		ID: "gpu", Title: "GPU utilisation and waiting for samples",
		Caption: "Where utilisation falls while waiting rises, the GPUs starve. Where it falls alone, " +
			"something else holds them up: the CPU, communication, checkpoints.",
	}
	seen, there := false, false
	for i := range run.Nodes {
		seen = seen || run.Nodes[i].Levels[runlog.Utilisation].Seen()
		there = there || len(run.Nodes[i].GPUs) > 0
	}
	switch {
	case t == nil:
		f.Missing = noNodeLines
	case there && !seen:
		f.Missing = silentGPUs
	case !seen:
		f.Missing = noGPUs
	default:
		band := series{
			Key:   Key{Class: "band", Name: "the nodes' range"},
			value: lowest(runlog.Utilisation), high: highest(runlog.Utilisation),
		}
		f.drawLines(t, "share of time", share, []series{
			line("c", "GPU utilisation, mean", mean(runlog.Utilisation)), band,
			line("b", "waiting for samples", waiting),
		})
	}
	return f
}

// known returns v if any node wrote a line in the bin.
func known(b *runlog.Bin, v float64) float64 {
	if !b.Levels[runlog.SlabBytes].Seen() {
		return math.NaN()
	}
	return v
}

func mean(l runlog.Level) valueOf {
	return func(b *runlog.Bin, _ float64) float64 { return b.Levels[l].Mean() }
}

func lowest(l runlog.Level) valueOf {
	return func(b *runlog.Bin, _ float64) float64 {
		if !b.Levels[l].Seen() {
			return math.NaN()
		}
		return b.Levels[l].Min
	}
}

func highest(l runlog.Level) valueOf {
	return func(b *runlog.Bin, _ float64) float64 {
		if !b.Levels[l].Seen() {
			return math.NaN()
		}
		return b.Levels[l].Max
	}
}
