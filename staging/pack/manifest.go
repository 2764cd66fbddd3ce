package pack

import (
	"fmt"

	"rankpool/staging"
)

// built returns the manifest of shards [from, to), which are in root under the names that name
// returns and were modified at modTimes. sums are the checksums of their samples, nil: unknown.
//
// The "cls" files that the plan added are not members of a sample: its bytes are those of the
// source.
func (p *Plan) built(root string, from, to int, name func(shard int) string, modTimes []int64,
	sums []uint64,
) (*staging.Manifest, error) {
	first, _ := p.span(from)
	_, last := p.span(to - 1)
	shard, at := from-1, int64(0)
	var path string
	var failed error
	var members []staging.Member
	var files []file
	m, err := staging.Build(root, p.manifest.Classes(), last-first, func(i int) staging.Sample {
		place := first + i
		if s := p.shardOf(place); s != shard {
			shard, at, path = s, 0, name(s)
		}
		if files, failed = p.files(files[:0], place); failed != nil {
			return staging.Sample{Label: -1} // which ends it
		}
		id := p.order[place]
		members = members[:0]
		sample := staging.Sample{
			Path: path, Format: staging.FormatTar, Size: p.manifest.Size(id), Label: p.manifest.Label(id),
			ModTime: modTimes[shard-from],
		}
		for i := range files {
			f := &files[i]
			if !f.added {
				members = append(members, staging.Member{Kind: f.kind, Offset: f.data(at), Size: f.size})
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
