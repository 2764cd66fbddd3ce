package pack

import (
	"fmt"

	"rankpool/staging/dataset"
)

// built returns the manifest of the shards in root, which were modified at modTimes. sums are the
// checksums of their samples.
//
// The "cls" files that the plan added are not members of a sample: its bytes are those of the
// source.
func (p *Plan) built(root string, modTimes []int64, sums []uint64) (*dataset.Manifest, error) {
	b := dataset.NewBuilder(root, p.Len())
	shard, at := -1, int64(0)
	sample := dataset.Sample{Format: dataset.FormatTar}
	var files []file
	for place := range p.Len() {
		if s := p.shardOf(place); s != shard {
			shard, at, sample.Path = s, 0, p.Name(s)
		}
		var err error
		if files, err = p.files(files[:0], place); err != nil {
			return nil, err
		}
		id := p.order[place]
		sample.Size, sample.Label, sample.ModTime = p.manifest.Size(id), p.manifest.Label(id),
			modTimes[shard]
		sample.Members = sample.Members[:0]
		for i := range files {
			f := &files[i]
			if !f.added {
				sample.Members = append(sample.Members,
					dataset.Member{Kind: f.kind, Offset: f.data(at), Size: f.size})
			}
			at = f.end(at)
		}
		if sample.Offset = 0; len(sample.Members) > 0 {
			sample.Offset = sample.Members[0].Offset
		}
		sample.Checksum = sums[place]
		if err := b.Add(sample); err != nil {
			return nil, fmt.Errorf("pack: %w", err)
		}
	}
	m, err := b.Manifest(p.manifest.Classes())
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return m, nil
}
