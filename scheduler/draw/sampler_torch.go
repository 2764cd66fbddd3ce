package draw

import "cmp"

// torchSampler draws what torch.utils.data.DistributedSampler draws, bit for bit, with
// shuffle=False as torch-sequential: replica r of W gets IDs[r::W], so place j of a global batch
// belongs to trainer j mod W. Without SamplerDropLast the samples are padded from their beginning
// to a multiple of W, with it they are cut; W is the number of processes that the training began
// with. If a training resumes with another number of trainers, the epoch is the same, and only who
// trains on which place differs.
//
// Source: PyTorch 1.13, torch/utils/data/distributed.py, DistributedSampler.
type torchSampler struct {
	cfg   SamplerConfig
	draws int // of an epoch
}

func newTorchSampler(cfg SamplerConfig) Sampler {
	s := &torchSampler{cfg: cfg, draws: torchTotal(cfg)}
	if cfg.DropLast {
		s.draws -= s.draws % cfg.globalBatch()
	}
	return s
}

// torchTotal is DistributedSampler's total_size.
func torchTotal(cfg SamplerConfig) int {
	processes := cmp.Or(cfg.Processes, cfg.World)
	each := cfg.Samples / processes // = ceil((N - W) / W) when W does not divide N
	if cfg.Samples%processes != 0 && !cfg.SamplerDropLast {
		each++
	}
	return each * processes
}

// Pad implements Padder.
func (s *torchSampler) Pad(processes int) Sampler {
	if cfg := s.cfg; cfg.Processes != processes {
		cfg.Processes = processes
		return newTorchSampler(cfg)
	}
	return s
}

func (s *torchSampler) Weighted() bool { return false }

func (s *torchSampler) Draw(epoch int, _ []float32) *Draws {
	ids := s.permutation(epoch, max(s.draws-s.cfg.Samples, 0))
	if s.draws > len(ids) {
		ids = ids[:s.draws]
		repeat(ids, s.cfg.Samples)
	}
	return &Draws{
		Epoch: epoch, IDs: ids[:s.draws],
		forecast: &torchForecast{sampler: s, epoch: epoch},
	}
}

func (s *torchSampler) permutation(epoch, spare int) []SampleID {
	if s.cfg.Name == InTorchsOrder {
		return inOrder(s.cfg.Samples, spare)
	}
	return randperm(s.cfg.Samples, s.cfg.Seed+int64(epoch), spare)
}

// torchForecast knows the next epoch exactly.
type torchForecast struct {
	unweighted
	sampler *torchSampler
	epoch   int
	place   []int32 // of each sample in the next epoch's permutation; made when first asked
}

// next is exact if the next epoch draws the sample; if the next epoch drops it, next returns the
// middle of the epoch after it.
func (f *torchForecast) next(id SampleID, _ float32) float64 {
	if f.place == nil {
		f.place = make([]int32, f.sampler.cfg.Samples)
		for p, id := range f.sampler.permutation(f.epoch+1, 0) {
			f.place[id] = int32(p)
		}
	}
	if p := int(f.place[id]); p < f.sampler.draws {
		return float64(f.epoch+1) + float64(p)/float64(f.sampler.draws)
	}
	return float64(f.epoch+2) + 0.5
}

// twister is the Mersenne Twister MT19937, PyTorch's generator on the CPU.
//
// Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998, §2.1 and Table II;
// the seeding is that of their 2002 revision, init_genrand.
type twister struct {
	state [624]uint32
	words [624]uint32 // tempered
	used  int         // words that were returned
}

func newTwister(seed uint32) *twister {
	t := &twister{used: 624}
	t.state[0] = seed
	for i := uint32(1); i < 624; i++ {
		prev := t.state[i-1]
		t.state[i] = 1812433253*(prev^prev>>30) + i
	}
	return t
}

// next is inlined, so that a processor looks ahead to the next swaps of randperm.
func (t *twister) next() uint32 {
	if t.used == len(t.words) {
		t.twist()
	}
	t.used++
	return t.words[t.used-1]
}

// twist makes the next 624 words.
func (t *twister) twist() {
	const n, m = 624, 397
	s := &t.state
	next, far := 1, m
	for i := range s {
		y := s[i]&0x80000000 | s[next]&0x7fffffff
		s[i] = s[far] ^ y>>1 ^ -(y&1)&0x9908b0df
		if next++; next == n {
			next = 0
		}
		if far++; far == n {
			far = 0
		}
	}
	for i, y := range s {
		y ^= y >> 11
		y ^= y << 7 & 0x9d2c5680
		y ^= y << 15 & 0xefc60000
		t.words[i] = y ^ y>>18
	}
	t.used = 0
}

// torchSamplesMax is where torch.randperm starts to use 64-bit random numbers.
//
// Source: PyTorch, aten/src/ATen/native/TensorFactories.cpp, randperm_cpu: (2^32-1)/20.
const torchSamplesMax = (1<<32 - 1) / 20

// randperm returns torch.randperm(n, generator=g) after g.manual_seed(seed), n < torchSamplesMax.
// The generator uses the seed's low 32 bits. spare more places are allocated.
//
// Source: PyTorch 1.13, aten/src/ATen/native/TensorFactories.cpp, randperm_cpu; checked against
// PyTorch in testdata/torch_golden.py.
func randperm(n int, seed int64, spare int) []SampleID {
	perm := inOrder(n, spare)
	random := newTwister(uint32(seed))
	for i := range n - 1 {
		rest := perm[i:]
		z := random.next() % uint32(len(rest))
		rest[0], rest[z] = rest[z], rest[0]
	}
	return perm
}

func inOrder(n, spare int) []SampleID {
	ids := make([]SampleID, n, n+spare)
	for i := range ids {
		ids[i] = SampleID(i)
	}
	return ids
}
