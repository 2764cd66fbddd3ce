package pack

import (
	"encoding/binary"
	"fmt"
	"sort"
	"sync"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/shards"
)

// A Plan lists the samples of each shard; it is immutable, so any number of goroutines may use
// it.
type Plan struct {
	manifest *dataset.Manifest
	order    []draw.SampleID
	label    bool             // samples get a "cls" file
	digits   int              // of a key
	headers  map[string]int64 // sizes of headers of files below largeBytes, by kind

	ends   []int   // shard i holds the samples at positions [ends[i-1], ends[i]) of the order
	bytes  []int64 // per shard
	total  int64   // the sum of bytes
	target int64   // a shard's maximum size

	identity func() [16]byte // see hash; computed once
}

// NewPlan plans shards of at most shardBytes bytes each, or of one larger sample, that hold the
// samples of m in the order of ids. An id may occur several times; its position in the order is its
// key. It keeps ids, which the caller must not change afterwards. The labels of a data set with
// classes go into the shards as .cls files.
//
// Errors: no ids, a sample that cannot be stored in a tar shard, more than shards.MaxClasses
// classes. It panics on an id that m does not have.
func NewPlan(m *dataset.Manifest, ids []draw.SampleID, shardBytes int64) (*Plan, error) {
	p := &Plan{
		manifest: m, order: ids, digits: max(keyDigits, len(fmt.Sprint(len(ids)-1))),
		headers: map[string]int64{}, target: shardBytes,
	}
	p.identity = sync.OnceValue(p.hash)
	p.label = len(m.Classes()) > 1 || len(m.Classes()) == 1 && m.Classes()[0] != ""
	switch {
	case len(ids) == 0:
		return nil, fmt.Errorf("pack: no samples of %s were chosen", m.Root())
	case len(m.Classes()) > shards.MaxClasses:
		return nil, fmt.Errorf("pack: %s has %d classes, but the labels of a tar shard must be below %d",
			m.Root(), len(m.Classes()), shards.MaxClasses)
	}
	var files []file
	var err error
	used := int64(endBytes)
	for place := range ids {
		if files, err = p.files(files[:0], place); err != nil {
			return nil, err
		}
		need := int64(0)
		for i := range files {
			need = files[i].end(need)
		}
		if used > endBytes && need > shardBytes-used {
			p.ends, p.bytes = append(p.ends, place), append(p.bytes, used)
			used = endBytes
		}
		used += need
	}
	p.ends, p.bytes = append(p.ends, len(ids)), append(p.bytes, used)
	for _, size := range p.bytes {
		p.total += size
	}
	return p, nil
}

// Shards returns the number of shards.
func (p *Plan) Shards() int { return len(p.ends) }

// Len returns the number of samples.
func (p *Plan) Len() int { return len(p.order) }

// Bytes returns the size of a shard's file.
func (p *Plan) Bytes(shard int) int64 { return p.bytes[shard] }

// TotalBytes returns the size of all shards.
func (p *Plan) TotalBytes() int64 { return p.total }

// Name returns the name of a shard's file.
func (p *Plan) Name(shard int) string { return fmt.Sprintf("pack-%06d.tar", shard) }

// span returns the positions in the order of a shard's samples.
func (p *Plan) span(shard int) (from, to int) {
	if shard > 0 {
		from = p.ends[shard-1]
	}
	return from, p.ends[shard]
}

// shardOf returns the shard with the sample at a position of the order.
func (p *Plan) shardOf(place int) int { return sort.SearchInts(p.ends, place+1) }

// key returns the key of the sample at a position of the order.
func (p *Plan) key(place int) string { return fmt.Sprintf("%0*d", p.digits, place) }

// hash returns a hash of everything that determines the shards: equal plans of unchanged data have
// equal hashes.
func (p *Plan) hash() [16]byte {
	hash := xxh3.New()
	var buf []byte
	text := func(s string) { buf = append(binary.AppendUvarint(buf, uint64(len(s))), s...) }
	number := func(n int64) { buf = binary.AppendVarint(buf, n) }
	number(p.target)
	number(int64(len(p.manifest.Classes())))
	for _, class := range p.manifest.Classes() {
		text(class)
	}
	for _, id := range p.order {
		m := p.manifest
		text(m.RelPath(id))
		for _, n := range []int64{
			int64(m.Format(id)), m.Offset(id), m.Size(id), int64(m.Label(id)),
			m.ModTime(id),
		} {
			number(n)
		}
		for _, member := range m.Members(id) {
			text(member.Kind)
			number(member.Offset)
			number(member.Size)
		}
		_, _ = hash.Write(buf) // a hash returns no error
		buf = buf[:0]
	}
	return hash.Sum128().Bytes()
}
