package draw

import "math/bits"

// ownerSalt keeps the hash of blocks apart from the clocks; any constant would do, as long as it
// never changes.
const ownerSalt = 0xd1b54a32d192ed03

// Owner returns the rank whose partition may hold a sample, 0 ≤ Owner < ranks; ranks must be
// positive.
//
// The numbers of samples that two ranks own differ by at most one: each rank owns one sample in
// every block of ranks consecutive ids, and a hash of the block rotates the ranks, so that no
// regularity in the order of samples coincides with one in the ranks. The function is fixed
// forever: it is part of what makes two runs the same.
func Owner(id SampleID, ranks int) int {
	n := uint32(ranks)
	block := uint32(id) / n
	turn, _ := bits.Mul64(mix(uint64(block)+ownerSalt), uint64(n))
	at := uint32(id) - block*n + uint32(turn)
	if at >= n {
		at -= n
	}
	return int(at)
}

// OwnerOfBlock returns the rank whose partition may hold a piece, when block neighbouring pieces
// have one owner. block must be positive.
func OwnerOfBlock(piece SampleID, block, ranks int) int {
	return Owner(piece/SampleID(block), ranks)
}
