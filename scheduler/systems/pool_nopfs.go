package systems

import "rankpool/scheduler"

// nopfs keeps in each rank what the rank reads most over the whole training, and never evicts.
//
// The frequencies are those of the sampler torch, whatever the sampler is: with draws that depend on losses the future is not known,
// and caches that are filled once stay as the shuffle would have them.
//
// Source: Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O", SC 2021.
// Differs: a sample is kept by its home when it is first read, whoever reads it, so it is read from storage once; NoPFS's
// home reads it for itself, in the order in which it needs it. A home has one tier, memory. The staging buffer, which is filled in
// order of access and emptied by use, is every system's: it is the time model's reading ahead. That a remote copy is there is known, not
// guessed from one's own progress.
type nopfs struct {
	memory                *Memory
	homes                 []nopfsHome
	localPays, remotePays bool // the model would rather read there than from storage
}

func newNoPFS(cfg PoolConfig) Pool {
	model := nopfsMachine(&cfg)
	p := &nopfs{memory: cfg.Memory}
	_, source := model.Fetch(1, float64(cfg.Ranks), 1, NoPFSNowhere)
	p.localPays = source != NoPFSStorage
	_, source = model.Fetch(1, float64(cfg.Ranks), NoPFSNowhere, 1)
	p.remotePays = source != NoPFSStorage
	room := make([][]int64, cfg.Ranks)
	for r := range room {
		room[r] = []int64{cfg.Memory.Room(r)}
	}
	accesses := nopfsAccesses(nopfsSamplers(&cfg), cfg.Samples, cfg.Epochs, cfg.Ranks)
	p.homes = nopfsPlace(accesses, cfg.Samples, room, cfg.Memory.Size)
	return p
}

// nopfsSamplers are the shuffles of all jobs.
func nopfsSamplers(cfg *PoolConfig) []scheduler.Sampler {
	all := make([]scheduler.Sampler, cfg.Jobs)
	for job := range all {
		var err error
		all[job], err = scheduler.NewSampler(scheduler.SamplerConfig{
			Name: "torch", Samples: cfg.Samples, Seed: cfg.Seed + int64(job), BatchSize: max(cfg.GlobalBatch/cfg.Ranks, 1), World: cfg.Ranks,
		})
		if err != nil {
			panic("systems: nopfs cannot know the shuffle: " + err.Error() + ".")
		}
	}
	return all
}

// nopfsMachine is the machine whose model chooses sources: the one that the paper simulates.
func nopfsMachine(cfg *PoolConfig) NoPFSModel {
	return NoPFSModel{
		Compute: 64, Preprocess: 200, Network: cfg.Value("network"),
		PFS: []NoPFSRate{{1, 330}, {2, 730}, {4, 1540}, {8, 2870}},
		Tiers: []NoPFSTier{
			{ReadMBps: cfg.Value("memory"), WriteMBps: cfg.Value("memory"), Threads: 1},
			{ReadMBps: cfg.Value("memory"), WriteMBps: cfg.Value("memory"), Threads: 1},
		},
	}
}

// Begin implements Pool.
func (p *nopfs) Begin(int, int, []scheduler.SampleID) {}

// Trained implements Pool.
func (p *nopfs) Trained(*Batch, scheduler.Report) {}

// Batch implements Pool.
func (p *nopfs) Batch(b *Batch, answers []Answer) {
	for i, id := range b.IDs {
		answers[i] = Answer{Served: id}
		home := p.homes[id]
		switch {
		case !p.memory.Has(id):
			answers[i].Read = true
			if home.tier > 0 {
				p.memory.Keep(id, home.rank)
			}
		case home.rank == b.Rank[i]:
			answers[i].Read = !p.localPays
		default:
			answers[i].Read = !p.remotePays
		}
	}
}

var nopfsSystem = System{
	Name: "nopfs", Sampler: "torch", Policy: "nopfs", NewPool: newNoPFS,
	About:  "knows all shuffles: each rank keeps the samples that it will read most over all epochs, and never evicts",
	Source: "Dryden et al., \"Clairvoyant Prefetching for Distributed Machine Learning I/O\", SC 2021",
	Options: []Option{
		{Name: "network", Default: 24000, Least: 1e-06, Most: 1e+09, About: "b_c, bandwidth between ranks for the choice of the source, MB/s", Source: "§6, simulated machine"},
		{
			Name: "memory", Default: 10000, Least: 1e-06, Most: 1e+09, About: "bandwidth of one thread's reads of memory for the choice of the source, MB/s",
			Source: "a core copies 5,000 to 10,000 MB/s, 110 KiB at a time, measured on a two-core virtual machine",
		},
	},
}
