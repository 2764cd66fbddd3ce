package scheduler

// table has a small value for each sample; the zero value is none. A dense one takes room for every
// sample and finds a value by one load, which the training path needs; a sparse one grows with what
// is in it, for simulations of a thousand ranks.
type table[V comparable] struct {
	dense  []V
	sparse map[SampleID]V
}

// newTable returns an empty table: dense for samples 0 ≤ id < samples, sparse if samples is 0.
func newTable[V comparable](samples int) table[V] {
	if samples > 0 {
		return table[V]{dense: make([]V, samples)}
	}
	return table[V]{sparse: map[SampleID]V{}}
}

func (t *table[V]) get(id SampleID) V {
	if t.dense != nil {
		return t.dense[id]
	}
	return t.sparse[id]
}

func (t *table[V]) set(id SampleID, v V) {
	var none V
	switch {
	case t.dense != nil:
		t.dense[id] = v
	case v == none:
		delete(t.sparse, id)
	default:
		t.sparse[id] = v
	}
}
