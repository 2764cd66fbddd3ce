package pack

import (
	"fmt"

	"rankpool/staging/dataset"
)

// built returns the manifest of shards [from, to), which are in root under the names that name
// returns and were modified at modTimes. sums are the checksums of their samples, nil: unknown.
//
// The "cls" files that the plan added are not members of a sample: its bytes are those of the
// source.
func (p *Plan) built(root string, from, to int, name func(shard int) string, modTimes []int64,
	sums []uint64,
) (*dataset.Manifest, error) {
	first, _ := p.span(from)
	_, last := p.span(to - 1)
	shard, at := from-1, int64(0)
	var path string
	var failed error
	var members []dataset.Member
	var files []file
	m, err := dataset.Build(root, p.manifest.Classes(), last-first, func(i int) dataset.Sample {
		place := first + i
		if s := p.shardOf(place); s != shard {
			shard, at, path = s, 0, name(s)
		}
		if files, failed = p.files(files[:0], place); failed != nil {
			return dataset.Sample{Label: -1} // ends Build with an error
		}
		id := p.order[place]
		members = members[:0]
		sample := dataset.Sample{
			Path: path, Format: dataset.FormatTar, Size: p.manifest.Size(id), Label: p.manifest.Label(id),
			ModTime: modTimes[shard-from],
		}
		for i := range files {
			f := &files[i]
			if !f.added {
				members = append(members, dataset.Member{Kind: f.kind, Offset: f.data(at), Size: f.size})
			}
			at = f.end(at)
		}
		if len(members) > 0 {
			sample.Offset = members[0].Offset
		}
		if sums != nil {
			sample.Checksum = sums[i]
		}
		sample.Members = members
		return sample
	})
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return m, nil
}
