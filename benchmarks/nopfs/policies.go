package nopfs

import (
	"fmt"
	"math"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/systems"
)

// A policy is a row of the paper's Figure 8.
type policy struct {
	Name, About string

	perfect  bool // samples are always available
	onDemand bool // samples that no worker holds are read when they are needed, not ahead
	// prepare fills tiers before training, and sets Result.Preload. It returns why the policy cannot
	// be used, or "". nil if there is nothing to prepare.
	prepare func(*training) string
	// deal assigns the samples of a global batch to workers.
	deal func(*training, []draw.SampleID) [][]draw.SampleID
	// keepRead is called with each sample that a worker's staging threads have read; nil if the
	// policy keeps none.
	keepRead func(*training, int, draw.SampleID)
}

// policies are in the paper's order. Source: paper, section 6, list of policies; thesis, section
// 4.1.4.
var policies = []policy{
	{Name: "perfect", About: "no stalls: the lower bound", perfect: true, deal: dealPlaces},
	{
		Name:     "naive",
		About:    "reads each sample from the PFS when it is needed; no prefetching, no cache",
		onDemand: true, deal: dealPlaces,
	},
	{
		Name:  "staging-buffer",
		About: "prefetches from the PFS in order of use (double buffering, tf.data); no cache",
		deal:  dealPlaces,
	},
	{
		Name: "deepio-ordered",
		About: "DeepIO: memory is filled before training; what is not in it is read from the PFS " +
			"when it is needed",
		onDemand: true, prepare: preloadMemory, deal: dealPlaces,
	},
	{
		Name:    "deepio-opportunistic",
		About:   "DeepIO: trains on samples of its own memory in place of those that are in none",
		prepare: preloadMemory, deal: dealHeld,
	},
	{
		Name:    "parallel-staging",
		About:   "data sharding: a worker stages its part of the data, and trains on that alone",
		prepare: stageShards, deal: dealShards,
	},
	{
		Name:    "lbann-dynamic",
		About:   "LBANN's data store: memory keeps what its worker reads in the first epoch",
		prepare: needMemory, deal: dealPlaces, keepRead: keepFirstRead,
	},
	{
		Name:  "lbann-preload",
		About: "LBANN's data store: memory is filled before training",
		prepare: func(t *training) string {
			if refused := needMemory(t); refused != "" {
				return refused
			}
			return preloadMemory(t)
		},
		deal: dealPlaces,
	},
	{
		Name: "locality-aware",
		About: "Yang and Cong: memory is filled before training; of a global batch, a worker " +
			"trains on what it has",
		prepare: preloadMemory, deal: dealLocal,
	},
	{
		Name: "nopfs",
		About: "NoPFS: tiers keep what their worker uses most in the whole training, and are " +
			"filled in order of use beside training",
		prepare: startPrefetchers, deal: dealPlaces, keepRead: keepAssigned,
	},
}

// Policies returns the names of the policies, in the paper's order.
func Policies() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.Name
	}
	return names
}

// About returns a one-line description of a policy.
func About(name string) string {
	p, err := find(name)
	if err != nil {
		return ""
	}
	return p.About
}

func find(name string) (*policy, error) {
	for i := range policies {
		if policies[i].Name == name {
			return &policies[i], nil
		}
	}
	return nil, fmt.Errorf("nopfs: %w", systems.Unknown("policy", name, Policies()))
}

// hold allocates the tables of what each worker holds.
func (t *training) hold() {
	t.held = make([][]uint8, t.Workers)
	for w := range t.held {
		t.held[w] = make([]uint8, t.Samples)
	}
}

// memoryMB returns the size of a worker's RAM: tier 1, if there is one.
func (t *training) memoryMB() float64 {
	if len(t.CapacityMB) < 2 {
		return 0
	}
	return t.CapacityMB[1]
}

// needMemory refuses data that exceed the memory of all workers.
//
// Source: paper, section 6, LBANN: "it will fail if the dataset exceeds the aggregate worker
// memory".
func needMemory(t *training) string {
	total := 0.0
	for _, mb := range t.sizes {
		total += float64(mb)
	}
	if all := float64(t.Workers) * t.memoryMB(); total > all {
		return fmt.Sprintf("the data are %.0f MB, the memory of all workers is %.0f MB", total, all)
	}
	t.hold()
	return ""
}

// preloadMemory gives sample k to worker k mod N, while its RAM has room, and waits until all have
// read theirs.
func preloadMemory(t *training) string {
	t.hold()
	if len(t.CapacityMB) > 1 {
		t.preload(1, 1)
	}
	return ""
}

// stageShards is preloadMemory for all tiers, each with its own threads. A worker trains on its
// shard in its own order.
//
// Differs: in the tables of the thesis, workers fill all their storage, beyond their shards.
func stageShards(t *training) string {
	t.hold()
	if len(t.CapacityMB) > 1 {
		t.preload(1, len(t.CapacityMB)-1)
	}
	t.listHeld()
	for w, shard := range t.shards {
		if len(shard) == 0 {
			return fmt.Sprintf("worker %d has no room for any sample", w)
		}
	}
	return ""
}

// preload gives the samples to the workers in turn, and fills the tiers from first to last, each
// until a sample does not fit.
//
// Source: thesis, tables 5.1 and 5.2: a preload takes Σ (fetch + write) / p_j.
func (t *training) preload(first, last int) {
	free := make([][]float64, t.Workers)
	took := make([][]float64, t.Workers)
	for w := range free {
		free[w] = append([]float64(nil), t.CapacityMB...)
		took[w] = make([]float64, last+1)
	}
	for id := range draw.SampleID(t.Samples) {
		w := int(id) % t.Workers
		for tier := first; tier <= last; tier++ {
			if size := t.mb(id); take(&free[w][tier], size) {
				took[w][tier] += t.fetchAlone(size) / t.Machine.Tiers[tier].Threads
				t.held[w][id] = uint8(tier)
				t.out.PFSMB += size
				t.out.Preload = max(t.out.Preload, took[w][tier])
				break
			}
		}
	}
}

// take subtracts a sample's size from what is free in a tier, and reports whether it fits. If not,
// the tier counts as full, even for smaller samples that come later: otherwise it would hold the
// small samples of the data.
//
// Source: NoPFS's published code closes a tier in this way.
func take(free *float64, mb float64) bool {
	if mb > *free {
		*free = -1
		return false
	}
	*free -= mb
	return true
}

// fetchAlone returns how long one thread takes to read a sample from the PFS and preprocess it.
func (t *training) fetchAlone(mb float64) float64 {
	return t.Machine.Read(mb, float64(t.Workers), systems.NoPFSNowhere, systems.NoPFSNowhere)
}

// listHeld lists what each worker holds, for deals that choose from it.
func (t *training) listHeld() {
	t.shards = make([][]draw.SampleID, t.Workers)
	t.cursors = make([]int, t.Workers)
	for w, held := range t.held {
		for id, tier := range held {
			if tier > 0 {
				t.shards[w] = append(t.shards[w], draw.SampleID(id))
			}
		}
	}
}

// keepFirstRead keeps in RAM what no worker has yet.
func keepFirstRead(t *training, w int, id draw.SampleID) {
	if local, remote := t.find(w, id); max(local, remote) == systems.NoPFSNowhere {
		t.held[w][id] = 1
	}
}

// dealPlaces gives place j of a global batch to worker j mod N, as PyTorch's DistributedSampler
// does.
func dealPlaces(t *training, batch []draw.SampleID) [][]draw.SampleID {
	shares := make([][]draw.SampleID, t.Workers)
	for j, id := range batch {
		shares[j%t.Workers] = append(shares[j%t.Workers], id)
	}
	return shares
}

// dealLocal gives each worker what it holds, up to its part of the batch; the rest goes to those
// that have room.
//
// Source: Yang and Cong, "Accelerating Data Loading in Deep Neural Network Training", HiPC 2019, as
// the paper describes it.
func dealLocal(t *training, batch []draw.SampleID) [][]draw.SampleID {
	shares := make([][]draw.SampleID, t.Workers)
	room := func(w int) bool {
		return len(shares[w]) < (len(batch)+t.Workers-1-w)/t.Workers
	}
	var rest []draw.SampleID
	for _, id := range batch {
		if w := int(id) % t.Workers; t.held[w][id] > 0 && room(w) {
			shares[w] = append(shares[w], id)
		} else {
			rest = append(rest, id)
		}
	}
	w := 0
	for _, id := range rest {
		for !room(w) {
			w++
		}
		shares[w] = append(shares[w], id)
	}
	return shares
}

// dealHeld replaces samples that no worker holds with the next ones that the worker itself holds.
func dealHeld(t *training, batch []draw.SampleID) [][]draw.SampleID {
	if t.shards == nil {
		t.listHeld()
	}
	shares := dealPlaces(t, batch)
	for w, share := range shares {
		for k, id := range share {
			local, remote := t.find(w, id)
			if max(local, remote) == systems.NoPFSNowhere && len(t.shards[w]) > 0 {
				share[k] = t.shards[w][t.cursors[w]%len(t.shards[w])]
				t.cursors[w]++
			}
		}
	}
	return shares
}

// dealShards replaces all samples with those that the worker itself holds, each once before any
// comes again.
func dealShards(t *training, batch []draw.SampleID) [][]draw.SampleID {
	shares := dealPlaces(t, batch)
	for w, share := range shares {
		shard := t.shards[w]
		for k := range share {
			at := t.cursors[w] % len(shard)
			if at == 0 {
				t.shuffle(w)
			}
			share[k] = shard[at]
			t.cursors[w]++
		}
	}
	return shares
}

// shuffle puts a worker's shard in a new random order.
func (t *training) shuffle(w int) {
	shard := t.shards[w]
	generator := pcg(t.Seed, math.MaxInt32+int64(t.cursors[w])*int64(t.Workers)+int64(w))
	generator.Shuffle(len(shard), func(i, j int) { shard[i], shard[j] = shard[j], shard[i] })
}
