// Package runlog reads run logs, files of one JSON event per line that "rankpool run --log" writes,
// and condenses them into one Run, whose size does not grow with the log's.
//
//	Read      reads the events of a log, in order
//	Builder   builds a Run from events
//	Run       what happened: epochs, nodes, a timeline of bins, importance
package runlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"rankpool/mpicache/stats"
)

// An Event is one line of a run log. At most one of the pointers is not nil; all are nil for an
// event of unknown name. In an event "job" the epoch belongs to a training with a job name,
// separate from the one without. In an event "pass" it is a pass over a data set other than the
// first.
type Event struct {
	Name       string
	Begin      *Begin
	Node       *stats.Reading
	Epoch      *stats.Epoch
	Importance *Importance
	Summary    *stats.Summary // ends a job
}

// A Begin is the start of rank 0. If rank 0 restarts while training runs, the launch stays the
// same.
type Begin struct {
	Time   time.Time `json:"time"`
	Launch string    `json:"launch"`
	Ranks  int       `json:"ranks"`
	Data   []string  `json:"data"` // the first is trained on
}

// Importance is the distribution of a data set's scores after an epoch: Counts[i] samples have a
// score in [Edges[i], Edges[i+1]).
type Importance struct {
	Data   string    `json:"data"`
	Epoch  int       `json:"epoch"`
	Edges  []float64 `json:"edges"`
	Counts []int64   `json:"counts"`
}

// Limits on the values of an event. Larger values are errors of the writer, and would spoil all
// sums.
const (
	maxRank    = 1 << 20
	maxEpoch   = 1 << 24
	maxSeconds = 1e10 // of a counter, summed over trainers or GPUs
	maxCount   = 1e18 // samples or bytes
	maxScore   = 1e30
	maxEdges   = 1 << 12
	maxGPUs    = 64 // of a node
)

var errMalformed = errors.New("runlog: malformed event")

// Parse parses one line. It returns an error if it is not a JSON object, lacks the event's name, or
// has impossible values.
func Parse(line []byte) (e Event, err error) {
	if e.Name, err = eventName(line); err != nil {
		return e, err
	}
	switch e.Name {
	case "begin":
		e.Begin, err = parse(line, (*Begin).check)
	case "node":
		e.Node, err = parse(line, checkNode)
	case "epoch", "pass", "job":
		e.Epoch, err = parse(line, checkEpoch)
	case "importance":
		e.Importance, err = parse(line, (*Importance).check)
	case "summary":
		e.Summary, err = parse(line, checkSummary)
	default:
		if !json.Valid(line) {
			err = errMalformed
		}
	}
	return e, err
}

// eventName returns the event's name. Ranks write it first, so that it is found without parsing the
// line twice.
func eventName(line []byte) (string, error) {
	if rest, found := bytes.CutPrefix(line, []byte(`{"event":"`)); found {
		if name, _, found := bytes.Cut(rest[:min(len(rest), 32)], []byte{'"'}); found &&
			!bytes.ContainsRune(name, '\\') {
			return string(name), nil
		}
	}
	var head struct {
		Event string `json:"event"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return "", fmt.Errorf("runlog: %w", err)
	}
	if head.Event == "" {
		return "", errMalformed
	}
	return head.Event, nil
}

func parse[T any](line []byte, sane func(*T) bool) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(line, v); err != nil {
		return nil, fmt.Errorf("runlog: %w", err)
	}
	if !sane(v) {
		return nil, errMalformed
	}
	return v, nil
}

func (b *Begin) check() bool {
	return b.Launch != "" && len(b.Data) > 0 && b.Ranks >= 0 && b.Ranks <= maxRank
}

func checkNode(n *stats.Reading) bool {
	year := n.Time.Year()
	return year >= 2000 && year <= 2200 && n.Rank >= 0 && n.Rank < maxRank && n.Epoch >= -1 &&
		n.Epoch < maxEpoch && n.Kept <= n.KeptOf && len(n.Machine.GPUs) <= maxGPUs &&
		between(n.Seconds, maxSeconds) && checkSums(n.Totals())
}

func checkEpoch(e *stats.Epoch) bool {
	return e.Epoch >= 0 && e.Epoch < maxEpoch && checkSums(e.Sums)
}

func checkSummary(s *stats.Summary) bool {
	return checkSums(s.Sums) && between(s.WallSeconds, maxSeconds) && s.Ranks >= 0 &&
		s.Ranks <= maxRank
}

// checkSums reports whether all counters are possible.
func checkSums(sums stats.Sums) bool {
	for c, sum := range sums {
		most := maxCount
		if stats.Table[c].Unit == stats.Seconds {
			most = maxSeconds
		}
		waited := stats.Counter(c) == stats.StallSeconds || stats.Counter(c) == stats.GPUWaited
		if !between(sum, most) && !(waited && math.IsNaN(sum)) {
			return false
		}
	}
	return true
}

func (i *Importance) check() bool {
	n := len(i.Counts)
	if i.Epoch < 0 || i.Epoch >= maxEpoch || n == 0 || n > maxEdges || len(i.Edges) != n+1 ||
		!slices.IsSorted(i.Edges) {
		return false
	}
	for _, count := range i.Counts {
		if !between(float64(count), maxCount) {
			return false
		}
	}
	return i.Edges[0] >= -maxScore && i.Edges[n] <= maxScore
}

// between reports whether x is in [0, most].
func between(x, most float64) bool { return x >= 0 && x <= most }
