package scheduler

// twister is the Mersenne Twister MT19937, PyTorch's generator on the CPU.
//
// Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998, §2.1 and Table II;
// the seeding is that of their 2002 revision, init_genrand.
type twister struct {
	state [624]uint32
	used  int // words of state that were returned
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

func (t *twister) next() uint32 {
	if t.used == len(t.state) {
		t.twist()
	}
	y := t.state[t.used]
	t.used++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// twist makes the next 624 words.
func (t *twister) twist() {
	const n, m = 624, 397
	s := &t.state
	for i := range n {
		y := s[i]&0x80000000 | s[(i+1)%n]&0x7fffffff
		s[i] = s[(i+m)%n] ^ y>>1 ^ -(y&1)&0x9908b0df
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
	perm := make([]SampleID, n, n+spare)
	for i := range perm {
		perm[i] = SampleID(i)
	}
	random := newTwister(uint32(seed))
	for i := range n - 1 {
		rest := perm[i:]
		z := random.next() % uint32(len(rest))
		rest[0], rest[z] = rest[z], rest[0]
	}
	return perm
}
