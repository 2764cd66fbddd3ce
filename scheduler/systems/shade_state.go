package systems

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// What shadePool has learned for one job, as bytes: u32 1 if the next epoch prefers no draws, plus
// 2 if accuracies were measured, f64 mean loss of the previous epoch, u32 n and f64 accuracy[n],
// u32 n and for each resident, sorted by id, u32 id, u32 draws; then f32 latest loss of each
// sample. A resident's importance is its score.

var (
	le         = binary.LittleEndian
	errDamaged = errors.New("it is damaged")
)

// reader reads numbers from b, which becomes nil when it is too short.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	if r.b == nil || len(r.b) < n {
		r.b = nil
		return make([]byte, n)
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) u32() uint32  { return le.Uint32(r.take(4)) }
func (r *reader) u64() uint64  { return le.Uint64(r.take(8)) }
func (r *reader) f64() float64 { return math.Float64frombits(r.u64()) }

// appendState implements learning.
func (p *shadePool) appendState(b []byte) []byte {
	c := &p.curves[0]
	b = le.AppendUint64(le.AppendUint32(b, bit(c.even)+2*bit(c.measured)), math.Float64bits(c.loss))
	b = le.AppendUint32(b, uint32(len(c.accuracies)))
	for _, accuracy := range c.accuracies {
		b = le.AppendUint64(b, math.Float64bits(accuracy))
	}
	residents := p.app.all()
	b = le.AppendUint32(b, uint32(len(residents)))
	for _, r := range residents {
		b = le.AppendUint32(le.AppendUint32(b, uint32(r.id)), r.draws)
	}
	for _, loss := range c.latest {
		b = le.AppendUint32(b, math.Float32bits(loss))
	}
	return b
}

// restoreState implements learning.
func (p *shadePool) restoreState(state []byte) error {
	r, c := reader{state}, &p.curves[0]
	is := r.u32()
	c.even, c.measured, c.loss = is&1 == 1, is&2 == 2, r.f64()
	n := r.u32()
	if n > stagnationEpochs+1 {
		return errDamaged
	}
	c.accuracies = nil
	for range n {
		c.accuracies = append(c.accuracies, r.f64())
	}
	count := r.u32()
	if uint64(len(r.b)) != 8*uint64(count)+4*uint64(len(c.latest)) {
		return errDamaged
	}
	residents := reader{r.take(8 * int(count))}
	for id := range c.latest {
		c.latest[id] = math.Float32frombits(r.u32())
		p.cfg.Scores[0].Known[id] = protocol.Reported(c.latest[id])
	}
	for range count {
		if err := p.restoreResident(residents.u32(), residents.u32()); err != nil {
			return err
		}
	}
	return nil
}

func (p *shadePool) restoreResident(number, draws uint32) error {
	id := draw.SampleID(number)
	if int64(number) >= int64(p.cfg.Samples) || p.memory.Has(id) || !p.memory.Fits(id) {
		return errDamaged
	}
	p.memory.Draw(p.cache, p.use(0, id, 0), 0)
	newest := stager.Place(len(p.app.residents) - 1)
	p.app.residents[newest].draws = draws
	p.app.queue.Fix(newest)
	return nil
}

// all returns the residents, sorted by id.
func (q *byImportance) all() []importance {
	all := make([]importance, 0, q.queue.Len())
	for _, place := range q.queue.order {
		all = append(all, q.residents[place])
	}
	slices.SortFunc(all, func(a, b importance) int { return cmp.Compare(a.id, b.id) })
	return all
}
