package systems

import (
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

// nopfs keeps on each rank what the rank reads most over the whole training, and never evicts.
//
// The frequencies are those of the sampler torch, whatever sampler is used: if draws depend on
// losses the future is not known, and caches that are filled once stay as the shuffle filled them.
//
// Source: Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O", SC 2021.
// Differs: when any rank first reads a sample, the sample's first home keeps it, so it is read from
// storage once; another home stores a copy when it reads the sample itself. In NoPFS, homes read
// for themselves, in the order in which they need samples. A home has one tier, memory. The staging
// buffer, which is filled in order of access and emptied by use, is part of every system: it is the
// read-ahead of the time model. Ranks know that a remote copy exists; they do not guess it from
// their own progress.
type nopfs struct {
	memory                *Memory
	homes                 [][]int32 // by sample: ranks
	localPays, remotePays bool      // the model reads there rather than from storage
}

func newNoPFS(cfg PoolConfig) Pool {
	model := nopfsMachine(&cfg)
	p := &nopfs{memory: cfg.Memory}
	_, source := model.Fetch(1, float64(cfg.Ranks), 1, NoPFSNowhere)
	p.localPays = source != NoPFSStorage
	_, source = model.Fetch(1, float64(cfg.Ranks), NoPFSNowhere, 1)
	p.remotePays = source != NoPFSStorage
	room := make([]int64, cfg.Ranks)
	for r := range room {
		room[r] = cfg.Memory.Room(r)
	}
	accesses := nopfsAccesses(nopfsSamplers(&cfg), cfg.Samples, cfg.Epochs, cfg.Ranks,
		max(cfg.TrainersPerRank, 1))
	p.homes = nopfsPlace(accesses, cfg.Samples, room, cfg.Memory.Size)
	return p
}

// nopfsSamplers returns the shuffles of all jobs.
func nopfsSamplers(cfg *PoolConfig) []draw.Sampler {
	all := make([]draw.Sampler, cfg.Jobs)
	for job := range all {
		all[job] = mustSampler(cfg.System, draw.SamplerConfig{
			Name: "torch", Samples: cfg.Samples, Seed: cfg.Seed + int64(job),
			BatchSize: max(cfg.GlobalBatch/cfg.trainers(), 1), World: cfg.trainers(),
		})
	}
	return all
}

// nopfsMachine returns the model that chooses sources: the caller's, or that of the machine that
// the paper simulates. Options override both.
func nopfsMachine(cfg *PoolConfig) NoPFSModel {
	m := NoPFSModel{
		Compute: 64, Preprocess: 200, Network: 24000,
		PFS:   []NoPFSRate{{1, 330}, {2, 730}, {4, 1540}, {8, 2870}},
		Tiers: nopfsMemory(10000),
	}
	if cfg.Machine != nil {
		m = *cfg.Machine
	}
	if network := cfg.Value("network"); network > 0 {
		m.Network = network
	}
	if memory := cfg.Value("memory"); memory > 0 {
		m.Tiers = nopfsMemory(memory)
	}
	return m
}

// nopfsMemory returns the tiers of a worker that has only memory, for staging and for what it
// keeps.
func nopfsMemory(mbps float64) []NoPFSTier {
	return []NoPFSTier{
		{ReadMBps: mbps, WriteMBps: mbps, Threads: 1},
		{ReadMBps: mbps, WriteMBps: mbps, Threads: 1},
	}
}

// Begin implements Pool.
func (p *nopfs) Begin(int, int, []draw.SampleID) {}

// Trained implements Pool.
func (p *nopfs) Trained(*Batch, protocol.Report) {}

// Batch implements Pool.
func (p *nopfs) Batch(b *Batch, answers []Answer) {
	for i, id := range b.IDs {
		answers[i] = Answer{Served: id}
		switch rank := b.Rank[i]; {
		case !p.memory.Has(id):
			answers[i].Read = true
			if homes := p.homes[id]; len(homes) > 0 {
				p.memory.Keep(id, homes[0])
			}
			p.take(id, rank)
		case p.memory.At(id, rank):
			answers[i].Read = !p.localPays
		default:
			answers[i].Read = !p.remotePays
			p.take(id, rank)
		}
	}
}

// take stores a copy of a sample on the rank that read it, if the rank is one of its homes.
func (p *nopfs) take(id draw.SampleID, rank int32) {
	if slices.Contains(p.homes[id], rank) && !p.memory.At(id, rank) {
		p.memory.Copy(id, rank)
	}
}

var nopfsSystem = System{
	Name: "nopfs", Sampler: "torch", Policy: "nopfs", NewPool: newNoPFS, Live: livePlaced,
	NeedsEpochs: true, MostDraws: 1 << 32, // nopfsAccesses takes 2 bytes for each
	About: "knows all shuffles: each rank keeps the samples that it will read most over all " +
		"epochs, and never evicts",
	Source: "Dryden et al., \"Clairvoyant Prefetching for Distributed Machine Learning I/O\", SC " +
		"2021",
	Options: []Option{
		{
			Name: "network", Default: 0, Least: 0, Most: 1e+09,
			About: "b_c, bandwidth between ranks for the choice of the source, MB/s; 0: the " +
				"cluster file's, without one 24,000",
			Source: "§6, simulated machine",
		},
		{
			Name: "memory", Default: 0, Least: 0, Most: 1e+09,
			About: "bandwidth of reads of memory for the choice of the source, MB/s; 0: the " +
				"cluster file's, without one 10,000",
			Source: "a core copies 5,000 to 10,000 MB/s, 110 KiB at a time, measured on a " +
				"two-core virtual machine",
		},
	},
}
