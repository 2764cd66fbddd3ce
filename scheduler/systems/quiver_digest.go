package systems

import "rankpool/scheduler"

// Digest is the content hash of a sample, such as SHA-256.
type Digest [32]byte

// Entries maps each sample to its entry of a content-addressed cache: the first sample with the same digest. A caller that draws
// entries instead of samples keeps equal content once, whoever owns the copies.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §4.3.
func Entries(digests []Digest) []scheduler.SampleID {
	first := make(map[Digest]scheduler.SampleID, len(digests))
	entries := make([]scheduler.SampleID, len(digests))
	for i, d := range digests {
		entry, seen := first[d]
		if !seen {
			entry = scheduler.SampleID(i)
			first[d] = entry
		}
		entries[i] = entry
	}
	return entries
}
