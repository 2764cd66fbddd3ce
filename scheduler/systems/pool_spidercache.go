package systems

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// spiderPool has two regions: the importance cache keeps the samples with the highest graph scores,
// the homophily cache samples that are served for their neighbours. No sample is in both.
//
// Source: Wang et al., "SpiderCache", ICPP 2025, §4, Fig. 9, Algorithm 1. Differs: a resident's
// position in the importance cache follows its score (global imp_score, line 17); residents change
// only on misses. Since the regions are exclusive, the node with the highest degree is chosen among
// those of the batch that are in neither region (in Fig. 9, b "which was not previously in the
// Homophily Cache"). A batch belongs to a process: place i of a global batch belongs to process i
// mod W, of W, and each process's part yields a node. Lines 13 to 17 zip the drawn indices with the
// items that were served for them: as in the authors' loader, the sample that was drawn gets the
// embedding, and so the score, of the one that was served for it. Only a sample that was served
// itself is chosen as a node; the authors' loader reads others again. With several jobs each has
// its own graph, all share the regions, and the ratio follows job 0. §4.2 also names prefetching by
// score, but does not describe it; there is none.
//
// The paper's hits come from what its text leaves out: the authors' implementation
// (github.com/Wangzesonga/SpiderCache at 775bc02, data_loader/datasampler.py, prepare_hits) repeats
// draws of samples that the importance cache holds when an epoch begins, as SHADE does. Differs:
// all processes share one list of draws, in random order; there each process draws a list, cuts it
// to the most repeated entries, and trains on the repeated samples first.
//
// Differs: it chooses by epoch, see spiderEpochs. With the option by_batch, scores, neighbours and
// the sampler's weights change with every batch, as in Algorithm 1. The queue of the homophily
// cache changes batch by batch in both cases.
type spiderPool struct {
	memory     *Memory
	importance *stager.Cache
	homophily  *homophily
	graphs     []*spiderGraph // by job, of the epoch under way
	epochs     *spiderEpochs  // nil: graphs change with every batch
	ratio      *spiderRatio
	seed       int64
	repetition float64
	maxShare   float64
	divided    float64 // the ratio of the epoch under way
	trained    bool    // job 0 was, since its epoch began
	scored     []int32 // by sample: the last batch that scored it
	batches    int32
	best       []spiderNode // scratch, by process
}

// spiderNode is a sample of a batch with its neighbours.
type spiderNode struct {
	id         draw.SampleID
	rank       int32 // of the process
	neighbours []int32
}

func newSpiderPool(cfg PoolConfig) Pool {
	return makeSpiderPool(cfg, newSpiderRatio(
		cfg.Value("r_start"), cfg.Value("r_end"), cfg.Value("gamma"), cfg.Epochs))
}

func newSpiderImpPool(cfg PoolConfig) Pool {
	return makeSpiderPool(cfg, newSpiderRatio(1, 1, 1, cfg.Epochs))
}

func makeSpiderPool(cfg PoolConfig, ratio *spiderRatio) *spiderPool {
	p := &spiderPool{
		memory: cfg.Memory, ratio: ratio, scored: make([]int32, cfg.Samples),
		best: make([]spiderNode, cfg.trainers()),
		seed: cfg.Seed, repetition: cfg.Value("repetition"), maxShare: cfg.Value("max_share"),
	}
	for job := range cfg.Jobs {
		p.graphs = append(p.graphs, newSpiderGraph(&cfg, job))
	}
	p.importance = stager.NewCache(spiderHeap{newByImportance(false, false)}, 0,
		cfg.Memory.Size)
	p.homophily = newHomophily(cfg.Memory, cfg.Samples)
	if cfg.Value("by_batch") == 0 {
		p.epochs = newSpiderEpochs(&cfg, ratio.start)
	}
	p.divide(ratio.start)
	return p
}

// divide gives the importance cache its share of the memory, and the homophily cache the rest.
func (p *spiderPool) divide(ratio float64) {
	whole := p.memory.CapacityBytes()
	part := p.memory.Part(ratio, whole)
	p.importance.Resize(part, p.memory.Drop)
	p.homophily.Resize(whole - part)
	p.divided = ratio
}

// Ratio implements Divider.
func (p *spiderPool) Ratio() (float64, bool) { return p.divided, p.ratio.elastic() }

// Deviations implements Divider.
func (p *spiderPool) Deviations() []float64 { return p.ratio.deviations }

// Begin implements Pool. It is line 24, once per epoch.
func (p *spiderPool) Begin(job, epoch int, _ []draw.SampleID) {
	if p.epochs != nil {
		p.turn(job, epoch)
	} else if job == 0 && p.trained {
		p.divide(p.ratio.next(epoch, p.graphs[0].known()))
		p.trained = false
	}
}

// Measure implements Measurer.
func (p *spiderPool) Measure(job int, accuracy float32) {
	if job == 0 {
		p.ratio.told = accuracy
	}
}

// Resample implements Resampler: the draws are multinomial by the graph's scores (§4.1).
func (p *spiderPool) Resample(job, epoch int, _ []float32) (string, []float32) {
	g := p.graphs[job]
	if p.epochs != nil {
		p.cut(job, epoch)
		g = p.epochs.next[job]
	}
	return "weighted", append([]float32(nil), g.scores...)
}

// Repeat implements Repeater.
func (p *spiderPool) Repeat(job, epoch int, ids []draw.SampleID) []draw.SampleID {
	ids = padsRepeat(ids, p.importance.Resident, p.repetition, p.maxShare)
	order := newRandom(p.seed + int64(job) ^ int64(epoch)<<16)
	order.shuffle(ids)
	return ids
}

// Batch implements Pool. It is lines 4 to 12.
func (p *spiderPool) Batch(b *Batch, answers []Answer) {
	for i, id := range b.IDs {
		node, similar := p.homophily.Serves(id)
		switch {
		case p.importance.Resident(id):
			answers[i] = Answer{Served: id}
		case similar:
			answers[i] = Answer{Served: node}
		default:
			u := stager.Use{ID: id, Next: b.Next[i], Score: p.graphs[b.Job].scores[id]}
			answers[i] = p.memory.Draw(p.importance, u, b.Rank[i])
		}
	}
}

// Trained implements Pool. It is lines 14 to 22. It panics when the report has no embeddings.
func (p *spiderPool) Trained(b *Batch, r protocol.Report) {
	take := p.graphs[b.Job].take
	if p.epochs != nil {
		take = p.epochs.latest[b.Job].take
	}
	for i, id := range b.IDs {
		take(id, r.Embeddings[i])
	}
	p.Promote(b, r.IDs)
	if b.Job == 0 {
		p.ratio.observe(r.Losses)
		p.trained = true
	}
}

// Promote implements followed. For each process, it adds the node with the highest degree among the
// samples served for a batch to the homophily cache (lines 15 to 22).
func (p *spiderPool) Promote(b *Batch, served []draw.SampleID) {
	g := p.graphs[b.Job]
	p.batches++
	for process := range p.best {
		p.best[process].neighbours = p.best[process].neighbours[:0]
	}
	for i, id := range b.IDs {
		if p.scored[id] == p.batches || !g.index.Has(int32(id)) {
			continue // a repeat in the batch, with the same score; or it has no embedding yet
		}
		p.scored[id] = p.batches
		score, neighbours := g.score(id)
		if p.importance.Resident(id) {
			p.importance.Refresh(stager.Use{ID: id, Score: score})
		} else if best := &p.best[i%len(p.best)]; len(neighbours) > len(best.neighbours) &&
			served[i] == id && !p.homophily.Has(id) {
			best.id, best.rank = id, b.Rank[i]
			best.neighbours = append(best.neighbours[:0], neighbours...)
		}
	}
	for _, best := range p.best {
		if len(best.neighbours) > 0 {
			p.homophily.Push(best.id, best.neighbours, best.rank)
		}
	}
}

// spiderHeap orders the importance cache: the lowest score is evicted first, and only for a higher
// one (Fig. 9, cases 2 and 4).
type spiderHeap struct{ *byImportance }

func (h spiderHeap) Yields(victim stager.Place, newcomer stager.Use) bool {
	return h.residents[victim].score < newcomer.Score
}

var spiderGraphOptions = []Option{
	{
		Name: "lambda", Default: 1, Least: 1e-06, Most: 1e+06,
		About: "decay of similarity (Eq. 2) over a distance of one unit, the root mean square " +
			"distance of two embeddings, above 0",
		Source: "the paper gives no number; 1 leaves the choice to alpha",
	},
	{
		Name: "alpha", Default: 0.9, Least: 1e-06, Most: 0.999999,
		About: "similarity above which two samples are neighbours (Eq. 3), in (0, 1)",
		Source: "the paper gives no number; effective share of the samples that are drawn with " +
			"embeddings of 8, 16 and 128 numbers: 0.3, 0.3, 0.6 with 0.78; 0.4, 0.9, 1.0 with 0.9; " +
			"with 0.78 training on 128 numbers ends 0.6 to 1.0 points below uniform draws",
	},
	{
		Name: "threshold", Default: 0, Least: 0, Most: 1e+09,
		About: "squared Euclidean distance of two embeddings below which they are neighbours, " +
			"whatever their unit; 0: by lambda and alpha",
		Source: "the authors' implementation has exp(-0.01·d²) ≥ 0.98, so a threshold of 2.02; 0, " +
			"since it depends on the network's unit",
	},
	{
		Name: "repetition", Default: 3, Least: 1, Most: 1e+06,
		About: "how often a draw of a sample in the importance cache is repeated in an epoch, " +
			"at least 1; 1: once",
		Source: "replication_factor of the authors' implementation; not in the paper",
	},
	shadeMaxShare,
	{
		Name: "neighbormax", Default: 500, Least: 1, Most: 1e+06, Whole: true,
		About: "most neighbours that a query returns, and the divisor of x_other in Eq. 4, at " +
			"least 1",
		Source: "§4.1",
	},
	{
		Name: "ef", Default: 64, Least: 1, Most: 1e+06, Whole: true,
		About: "samples that a query keeps in view whether or not they are neighbours, at least 1",
		Source: "recorded traces: 0.9999 of the neighbours are found, with 16 as well; a query " +
			"continues past ef while it finds neighbours, so ef bounds no score",
	},
	{
		Name: "by_batch", Default: 0, Least: 0, Most: 1, Whole: true,
		About: "1: scores and neighbours change with every batch, as published; 0: those of an " +
			"epoch are chosen at the cut of the epoch before",
		Source:    "Algorithm 1 has 1; with 0 an epoch is known when it is planned",
		Simulated: true,
	},
}

var spiderCacheImpSystem = System{
	Name: "spidercache-imp", Scorer: "loss", Sampler: "weighted", Policy: "spidercache-imp",
	NewPool: newSpiderImpPool, Live: livePlaced,
	NeedsLabels: true, NeedsEmbeddings: true, Options: spiderGraphOptions,
	About:  "SpiderCache's importance cache alone: the samples with the highest graph scores",
	Source: "Wang et al., SpiderCache, ICPP 2025, §6.3",
}

var spiderCacheSystem = System{
	Name: "spidercache", Scorer: "loss", Sampler: "weighted", Policy: "spidercache",
	NewPool: newSpiderPool, Live: liveServed, NeedsEpochs: true,
	NeedsLabels: true, NeedsEmbeddings: true,
	Options: append([]Option{
		{
			Name: "r_start", Default: 0.9, Least: 0, Most: 1,
			About: "share of the importance cache at the start, in [0, 1]", Source: "§4.3, §6.5",
		},
		{
			Name: "r_end", Default: 0.8, Least: 0, Most: 1, About: "the same at the end, in [0, 1]",
			Source: "§4.3, §6.5",
		},
		{
			Name: "gamma", Default: 0.01, Least: 1e-09, Most: 1e+09,
			About: "growth of accuracy in an epoch at which the penalty factor u (Eq. 7) is 1/2, " +
				"above 0",
			Source: "the paper gives no number; recorded traces: late in training accuracy grows " +
				"by 0.01 an epoch",
		},
	}, spiderGraphOptions...),
	About: "importance and homophily cache over a graph of embeddings, with an elastic ratio; " +
		"serves neighbours for each other",
	Source: "Wang et al., SpiderCache, ICPP 2025, §4",
}
