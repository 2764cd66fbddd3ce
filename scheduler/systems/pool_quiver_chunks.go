package systems

import (
	"rankpool/scheduler/draw"
)

// quiverChunks is a data set in chunks.
type quiverChunks struct {
	of      []int32           // by sample: its chunk
	members [][]draw.SampleID // by chunk: its samples, in order of id
}

// quiverStripe stripes samples over chunks.
func quiverStripe(samples, chunks int) quiverChunks {
	s := quiverChunks{draw.Stripe(samples, chunks), make([][]draw.SampleID, chunks)}
	for id, c := range s.of {
		s.members[c] = append(s.members[c], draw.SampleID(id))
	}
	return s
}

// quiverFit divides the data set into chunks of which any two fit into capacityBytes. It also
// returns the bytes of the largest two. It returns no chunks if not even single samples fit.
//
// Differs: §5.3 has one chunk size; here the number of chunks grows, by an eighth at a time, until
// two of them fit.
func quiverFit(
	samples, chunks int, size func(draw.SampleID) int64, capacityBytes int64,
) (quiverChunks, int64) {
	for n := min(max(chunks, 2), samples); n <= samples; n += n/8 + 1 {
		s := quiverStripe(samples, n)
		if pair := s.pairBytes(size); pair <= capacityBytes {
			return s, pair
		}
	}
	return quiverChunks{}, 0
}

// pairBytes returns the size of the largest two chunks, or of the only one.
func (s *quiverChunks) pairBytes(size func(draw.SampleID) int64) int64 {
	first, second := int64(0), int64(0)
	for _, members := range s.members {
		bytes := int64(0)
		for _, id := range members {
			bytes += size(id)
		}
		if bytes > first {
			first, bytes = bytes, first
		}
		second = max(second, bytes)
	}
	return first + second
}
