package systems

import "rankpool/scheduler/draw"

// quiverChunks is a data set in chunks.
type quiverChunks struct {
	of      []int32           // by sample: its chunk
	members [][]draw.SampleID // by chunk: its samples, in order of id
}

// quiverParts is the number of contiguous parts of the data set.
//
// Source: §5.1.
const quiverParts = 10

// quiverStripe stripes samples over chunks: chunk c is the c-th stripe unit of each of ten
// contiguous parts of the data set. Parts are equal, and so are the units of a part, up to one
// sample.
//
// Source: §5.1.
// Differs: a data set with less than one sample per unit has fewer parts.
func quiverStripe(samples, chunks int) quiverChunks {
	s := quiverChunks{make([]int32, samples), make([][]draw.SampleID, chunks)}
	parts := max(min(quiverParts, samples/chunks), 1)
	for p := range parts {
		begin, end := p*samples/parts, (p+1)*samples/parts
		for id := begin; id < end; id++ {
			c := (id - begin) * chunks / (end - begin)
			s.of[id] = int32(c)
			s.members[c] = append(s.members[c], draw.SampleID(id))
		}
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
