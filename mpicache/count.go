package mpicache

import (
	"cmp"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/files"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/training"
)

// reporter gathers the counts of all ranks on rank 0 and records an epoch when all ranks with
// trainers have sent theirs.
type reporter struct {
	node *Node

	mu       sync.Mutex
	open     map[countKey]gathered
	recorded map[string]map[int]stats.Epoch // by training and epoch
	byes     int
	all      chan struct{} // closed when every rank has sent its bye
}

type countKey struct {
	training training.Key
	epoch    int
}

func (k countKey) compare(l countKey) int {
	a, b := k.training, l.training
	return cmp.Or(cmp.Compare(a.Set, b.Set), cmp.Compare(a.Job, b.Job),
		cmp.Compare(k.epoch, l.epoch))
}

// gathered holds what the ranks have sent about an epoch: their newest counts, which are running
// totals.
type gathered map[int]*stats.Epoch

func newReporter(n *Node) *reporter {
	r := &reporter{node: n, open: map[countKey]gathered{}, all: make(chan struct{})}
	if text, err := files.Read(r.recordedPath()); err == nil {
		_ = json.Unmarshal(text, &r.recorded) // a rank that died while writing leaves the previous file
	}
	if r.recorded == nil {
		r.recorded = map[string]map[int]stats.Epoch{}
	}
	return r
}

// recordedPath returns the file of the recorded epochs, which outlives this rank.
func (r *reporter) recordedPath() string { return filepath.Join(r.node.cfg.Dir, "recorded") }

// add adds a rank's count of an epoch, and records the epoch when the last of the expected ranks,
// those with trainers, has sent its count.
func (r *reporter) add(from int, of training.Key, expected []int32, c *stats.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := countKey{of, c.Epoch}
	g := r.open[key]
	if g == nil {
		g = gathered{}
		r.open[key] = g
	}
	g[from] = c
	for _, rank := range expected {
		if g[int(rank)] == nil {
			return
		}
	}
	// otherwise the data set was not opened since a restart: finish knows when all ranks have sent
	// their counts
	if len(expected) > 0 {
		r.record(key, g)
	}
}

// beginRecord is the first line that rank 0 writes to the run log.
type beginRecord struct {
	Event  string    `json:"event"`
	Time   time.Time `json:"time"`
	Launch string    `json:"launch"`
	Ranks  int       `json:"ranks"`
	Data   []string  `json:"data"` // the first is trained on
}

// recordBegin writes the line on rank 0 if the start of the training has a name; without one the
// line would not help readers.
func (n *Node) recordBegin() {
	if n.report == nil || n.cfg.Launch == "" || n.cfg.Record == nil {
		return
	}
	rec := beginRecord{
		Event: "begin", Time: time.Now().UTC(), Launch: n.cfg.Launch,
		Ranks: n.cfg.Transport.Size(),
	}
	for i := range n.cfg.Data {
		rec.Data = append(rec.Data, n.cfg.Data[i].Name)
	}
	n.cfg.Record(rec)
}

// record writes the epoch's line: event epoch for the first data set, pass for the others, and job
// for a training with a job name. After a restart trainers resend the counts of their last epochs:
// an epoch is not recorded a second time, unless draws were missing. An epoch without draws is not
// recorded.
func (r *reporter) record(key countKey, g gathered) {
	delete(r.open, key)
	name := key.training.String()
	sum := stats.Epoch{
		Event: "epoch", Data: r.node.cfg.Data[key.training.Set].Name, Job: key.training.Job,
		Epoch: key.epoch,
	}
	for _, c := range g {
		sum.Merge(c)
	}
	if before := r.recorded[name][key.epoch]; sum.Draws() <= before.Draws() {
		return
	}
	switch {
	case key.training.Job != "":
		sum.Event = "job"
	case key.training.Set > 0:
		sum.Event = "pass"
	}
	r.node.cfg.Record(sum)
	if r.recorded[name] == nil {
		r.recorded[name] = map[int]stats.Epoch{}
	}
	r.recorded[name][key.epoch] = sum
	text, err := json.Marshal(r.recorded)
	if err == nil {
		err = files.Write(r.recordedPath(), text)
	}
	if err != nil {
		r.node.cfg.Log.Warn("the counts of the epochs are not kept", "error", err)
	}
}

// total returns the sum over the epochs of all trainings on a data set; its Epoch is the number of
// epochs.
func (r *reporter) total(set int) stats.Epoch {
	var total stats.Epoch
	seconds, epochs := 0.0, 0
	for name, recorded := range r.recorded {
		if of, _, _ := strings.Cut(name, "@"); of != strconv.Itoa(set) {
			continue
		}
		for _, c := range recorded {
			total.Merge(&c)
			seconds += c.Sums[stats.TrainSeconds]
		}
		epochs += len(recorded)
	}
	total.Sums[stats.TrainSeconds] = seconds
	total.Epoch, total.Metrics = epochs, nil
	total.Benefit = stats.Benefit{} // benefits of different times and trainings do not add up
	return total
}

func (r *reporter) bye() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byes++; r.byes == r.node.cfg.Transport.Size()-1 {
		close(r.all)
	}
}

// finish waits for the other ranks' counts, at most timeout, and records what has arrived and the
// summary.
func (r *reporter) finish(timeout time.Duration) {
	if r.node.cfg.Transport.Size() > 1 {
		select {
		case <-r.all:
		case <-time.After(timeout):
			r.node.cfg.Log.Warn("not every rank has sent its counts")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(r.open), countKey.compare) {
		r.record(key, r.open[key])
	}
	r.node.observer.record(r.node.Now())
	t := r.total(0)
	t.Event, t.Data = "summary", r.node.cfg.Data[0].Name
	r.node.cfg.Record(stats.Summary{Epoch: t, Whole: stats.Whole{
		Ranks: r.node.cfg.Transport.Size(), Epochs: t.Epoch,
		WallSeconds: r.node.Now().Sub(r.node.rank.Started).Seconds(),
	}})
}

// status describes the node at this moment.
func (n *Node) status() door.Status {
	st := door.Status{Rank: n.cfg.Transport.Rank(), Ranks: n.cfg.Transport.Size()}
	for _, s := range n.rank.All() {
		st.Data = append(st.Data, s.Status())
	}
	st.Nodes = n.observer.ranks(n.Now())
	return st
}
