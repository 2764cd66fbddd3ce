package systems

import "rankpool/scheduler"

// quiverPartitions is the number of contiguous parts of the data set that each chunk has a stripe unit of.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.1.
const quiverPartitions = 10

// quiverChunks is a data set in chunks.
type quiverChunks struct {
	of      []int32                // by sample: its chunk
	members [][]scheduler.SampleID // by chunk: its samples, in order of id
}

// quiverStripe makes chunk c of the c-th stripe unit of each partition. Partitions are contiguous and equal, and so are the units of a
// partition, up to one sample.
//
// Source: §5.1.
// Differs: a data set of less than a sample a unit has fewer partitions.
func quiverStripe(samples, chunks int) quiverChunks {
	s := quiverChunks{make([]int32, samples), make([][]scheduler.SampleID, chunks)}
	parts := max(min(quiverPartitions, samples/chunks), 1)
	for p := range parts {
		begin, end := p*samples/parts, (p+1)*samples/parts
		for id := begin; id < end; id++ {
			c := (id - begin) * chunks / (end - begin)
			s.of[id] = int32(c)
			s.members[c] = append(s.members[c], scheduler.SampleID(id))
		}
	}
	return s
}

// quiverFit returns the data set in chunks so that any two fit into capacityBytes, and the bytes of the largest two.
// There are no chunks when not even single samples fit.
//
// Differs: §5.3 has one size of chunks; here they become smaller, an eighth at a time, when two of them do not fit.
func quiverFit(samples, chunks int, size func(scheduler.SampleID) int64, capacityBytes int64) (quiverChunks, int64) {
	for n := min(max(chunks, 2), samples); n <= samples; n += n/8 + 1 {
		s := quiverStripe(samples, n)
		if pair := s.pairBytes(size); pair <= capacityBytes {
			return s, pair
		}
	}
	return quiverChunks{}, 0
}

// pairBytes is the size of the largest two chunks, or of the only one.
func (s *quiverChunks) pairBytes(size func(scheduler.SampleID) int64) int64 {
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
