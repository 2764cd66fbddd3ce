package systems

import (
	"rankpool/scheduler/draw"
)

// quiverJob is what Quiver's client knows: the draws of its epoch, and which of them were used. A
// draw is identified by its place in the epoch, so a sample that is drawn twice is used twice.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §4.6, §4.7. Differs: unused indices are looked
// up, and a chunk's are picked, in the random order of the job's permutation. Each job has its own
// seed, so jobs pick different ones.
type quiverJob struct {
	on     bool // it trains, and is cached for in this epoch
	epoch  int
	ids    []draw.SampleID
	used   []bool    // by draw
	unused int       // draws that were not used
	pass   []int32   // draws of this pass over the list
	at     int       // index in pass of the first draw not looked up yet
	missed []int32   // pending: draws of the next pass
	of     []int32   // by sample: its chunk
	places [][]int32 // by chunk: its draws, used ones at the front cut off
	rest   []int     // by chunk: draws that were not used

	// the one it works on, from epoch to epoch; -1 before its first batch and after its last
	chunk int
}

// begin starts an epoch.
func (j *quiverJob) begin(epoch int, ids []draw.SampleID, chunks *quiverChunks) {
	j.epoch, j.ids, j.unused, j.of = epoch, ids, len(ids), chunks.of
	j.used = make([]bool, len(ids))
	j.pass, j.at, j.missed = j.pass[:0], 0, j.missed[:0]
	j.places, j.rest = make([][]int32, len(chunks.members)), make([]int, len(chunks.members))
	if len(chunks.members) == 0 {
		return
	}
	for draw, id := range ids {
		j.pass = append(j.pass, int32(draw))
		j.places[j.of[id]] = append(j.places[j.of[id]], int32(draw))
		j.rest[j.of[id]]++
	}
}

// lookup picks the first unused draws that are in memory, at most size, and looks up no more than
// limit. Draws that miss are pending until the end of the list. The next batch continues after the
// last draw looked up.
//
// Source: Algorithm 1, lines 5 to 9; passes: §4.7.
func (j *quiverJob) lookup(
	limit, size int, hit func(*quiverJob, draw.SampleID) bool, picked []int32,
) []int32 {
	for left := min(limit, j.unused); left > 0 && len(picked) < size; {
		if j.at == len(j.pass) {
			j.pass, j.missed, j.at = j.missed, j.pass[:0], 0
		}
		draw := j.pass[j.at]
		j.at++
		if j.used[draw] {
			continue
		}
		left--
		if hit(j, j.ids[draw]) {
			picked = j.use(draw, picked)
		} else {
			j.missed = append(j.missed, draw)
		}
	}
	return picked
}

// take picks unused draws of the job's chunk until size are picked or none is left.
//
// Source: Algorithm 1, lines 23 and 27.
func (j *quiverJob) take(size int, picked []int32) []int32 {
	rest := j.places[j.chunk]
	for ; len(rest) > 0 && len(picked) < size; rest = rest[1:] {
		if !j.used[rest[0]] {
			picked = j.use(rest[0], picked)
		}
	}
	j.places[j.chunk] = rest
	return picked
}

func (j *quiverJob) use(draw int32, picked []int32) []int32 {
	j.used[draw] = true
	j.unused--
	j.rest[j.of[j.ids[draw]]]--
	return append(picked, draw)
}
