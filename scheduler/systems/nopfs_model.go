package systems

import "math"

// NoPFSModel is the performance model of one worker's reads. Bandwidths are in MB/s, sizes in MB,
// times in seconds.
//
// Source: Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O", SC 2021,
// the performance model.
type NoPFSModel struct {
	Compute    float64     // c: what training consumes
	Preprocess float64     // β
	Network    float64     // b_c: between workers
	PFS        []NoPFSRate // t(γ): random reads of γ clients together, by rising γ
	// storage classes: 0 is the staging buffer, the others from the fastest to the slowest
	Tiers []NoPFSTier
}

// NoPFSRate is the bandwidth of Clients clients together.
type NoPFSRate struct{ Clients, MBps float64 }

// NoPFSTier is a storage class of a worker.
type NoPFSTier struct {
	ReadMBps  float64 // r_j(p_j)
	WriteMBps float64 // w_j(p_j)
	Threads   float64 // p_j: prefetching threads
}

// NoPFSSource is where a worker fetches a sample from.
type NoPFSSource uint8

// The sources, in the order in which Fetch prefers them in a tie.
const (
	NoPFSLocal   NoPFSSource = iota // its own tier
	NoPFSRemote                     // another worker's tier
	NoPFSStorage                    // the PFS
)

// NoPFSNowhere means that no tier holds a sample.
const NoPFSNowhere = -1

// Fetch returns how long a worker takes to fetch a sample of sizeMB while clients read the PFS, and
// the source that it chooses: the fastest of its own tier local, another worker's tier remote
// (NoPFSNowhere if there is none) and the PFS; the first in a tie.
func (m *NoPFSModel) Fetch(
	sizeMB, clients float64, local, remote int,
) (seconds float64, source NoPFSSource) {
	seconds = math.Inf(1)
	try := func(s NoPFSSource, mbps float64) {
		if took := sizeMB / mbps; took < seconds {
			seconds, source = took, s
		}
	}
	if local != NoPFSNowhere {
		try(NoPFSLocal, m.perThread(local))
	}
	if remote != NoPFSNowhere {
		try(NoPFSRemote, min(m.Network, m.perThread(remote)))
	}
	try(NoPFSStorage, m.pfs(clients)/clients)
	return seconds, source
}

// Write returns how long it takes to preprocess a sample and store it in the staging buffer.
func (m *NoPFSModel) Write(sizeMB float64) float64 {
	staging := m.Tiers[0]
	return max(sizeMB/m.Preprocess, sizeMB/(staging.WriteMBps/staging.Threads))
}

// Read returns how long it takes to read a sample from its source into the staging buffer: Fetch,
// then Write.
func (m *NoPFSModel) Read(sizeMB, clients float64, local, remote int) float64 {
	fetch, _ := m.Fetch(sizeMB, clients, local, remote)
	return fetch + m.Write(sizeMB)
}

// perThread returns the bandwidth at which one prefetching thread reads from a tier.
func (m *NoPFSModel) perThread(tier int) float64 {
	return m.Tiers[tier].ReadMBps / m.Tiers[tier].Threads
}

// pfs returns t(γ).
//
// Differs: the paper measures it for some numbers of clients. Here it is linear between them and
// constant beyond the last. With fewer clients than the first, each gets as much as each of those.
func (m *NoPFSModel) pfs(clients float64) float64 {
	last := NoPFSRate{}
	for _, r := range m.PFS {
		if clients <= r.Clients {
			return last.MBps + float64((r.MBps-last.MBps)*((clients-last.Clients)/(r.Clients-last.Clients)))
		}
		last = r
	}
	return last.MBps
}
