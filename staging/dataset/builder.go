package dataset

import "rankpool/staging/shards"

// A Builder builds a manifest in the order of its samples: NewBuilder, then for each folder
// AddFolder and its files, then Manifest.
type Builder struct{ m *Manifest }

// NewBuilder returns a Builder of a manifest of samples below root, an absolute path. nameBytes is
// the sum of the lengths of the samples' file names; a shard's name counts once per sample.
//
// Errors: too many samples, or names that take too many bytes.
func NewBuilder(root string, samples, nameBytes int64) (*Builder, error) {
	if err := checkLimits(samples, nameBytes); err != nil {
		return nil, err
	}
	m := &Manifest{root: root}
	m.reserve(int(samples), int(nameBytes))
	return &Builder{m}, nil
}

// AddFolder appends a folder; the files that follow are in it.
func (b *Builder) AddFolder(in Folder) { b.m.folders = append(b.m.folders, in) }

// AddFile appends a whole file in the last folder.
func (b *Builder) AddFile(name string, label uint32, sizeBytes, modTime int64) {
	b.m.add(b.row(), name, label, sizeBytes, modTime)
}

// row returns the row of the last folder.
func (b *Builder) row() uint32 { return uint32(len(b.m.folders) - 1) }

// AddShard appends the samples of a shard in the last folder. Their label is label, unless the
// shard has labels.
func (b *Builder) AddShard(name string, label uint32, modTime int64, format Format,
	c *shards.Contents,
) {
	b.m.addShard(b.row(), name, label, modTime, format, c)
}

// Manifest returns the manifest, whose classes are named by label. The Builder must not be used
// afterwards.
func (b *Builder) Manifest(classes []string) *Manifest {
	b.m.classes, b.m.members.numbers = classes, nil
	return b.m
}

// addShard appends the samples of a shard in folder row in; label is theirs unless the shard has
// labels.
func (m *Manifest) addShard(in uint32, name string, label uint32, modTime int64, format Format,
	c *shards.Contents,
) {
	m.addFormats()
	if c.Ends != nil && m.members.ends == nil {
		m.members.ends = make([]uint32, m.Len(), cap(m.sizes.wide))
	}
	kinds := make([]uint32, len(c.Kinds))
	for i, kind := range c.Kinds {
		kinds[i] = m.members.kindNumber(kind)
	}
	first := uint32(0)
	for i, place := range c.Samples {
		if c.Labels != nil {
			label = c.Labels[i]
		}
		m.add(in, name, label, place.Size, modTime)
		m.offsets.wide[m.Len()-1], m.formats[m.Len()-1] = place.Offset, format
		if c.Ends == nil {
			continue
		}
		for _, member := range c.Members[first:c.Ends[i]] {
			m.members.add(kinds[member.Kind], member.Offset, member.Size)
		}
		m.members.ends[m.Len()-1] = uint32(m.members.kind.len())
		first = c.Ends[i]
	}
}
