package index

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"rankpool/staging/dataset"
)

// manifest sorts the folders and puts the samples of their files into columns.
func (s *scanner) manifest() (*dataset.Manifest, error) {
	slices.SortFunc(s.folders,
		func(a, b *scannedFolder) int { return dataset.CompareFolders(a.path, b.path) })
	d, err := s.divide()
	if err != nil {
		return nil, err
	}
	s.tellLeftOut(d)
	built, labels := dataset.NewBuilder(s.root, int(s.files)), labelling{}
	if d.otherKinds {
		built.OtherKinds()
	}
	for i, in := range s.folders {
		if err := built.AddFolder(dataset.Folder{Path: in.path, ModTime: in.ModTime}); err != nil {
			return nil, fmt.Errorf("staging: %s: %w", s.root, err)
		}
		if i > 0 && (in.Others || len(in.Dangling) > 0) {
			built.LeavesOut()
		}
		if i == 0 || !d.flat {
			labels.enter(in.path, d.flat || len(s.folders) == 1)
		}
		for j := range in.Files {
			file := &in.Files[j]
			sh := d.shards[file]
			switch {
			case d.other[file], sh != nil && len(sh.contents.Samples) == 0:
				continue
			case sh != nil && sh.contents.Labels != nil:
				labels.number(sh.contents.Labels)
			default:
				labels.byFolder = true
			}
			sample := dataset.Sample{
				Path: path.Join(in.path, file.Name), Label: labels.folder(), Size: file.Size,
				ModTime: file.ModTime,
			}
			if err := addFile(built, sample, sh); err != nil {
				return nil, fmt.Errorf("staging: %s: %w", s.abs(sample.Path), err)
			}
		}
	}
	m, err := built.Manifest(labels.names())
	if err != nil {
		return nil, fmt.Errorf("staging: %s %w", s.root, err)
	}
	return m, nil
}

// addFile adds the samples of a file: the file itself, or, unless sh is nil, those of the shard.
// Their label is that of file, unless the shard has labels.
func addFile(built *dataset.Builder, file dataset.Sample, sh *shardFile) error {
	if sh == nil {
		return built.Add(file)
	}
	c, sample, first := sh.contents, file, uint32(0)
	sample.Format = sh.format
	for i, place := range c.Samples {
		sample.Offset, sample.Size = place.Offset, place.Size
		if c.Labels != nil {
			sample.Label = int(c.Labels[i])
		}
		if c.Ends != nil {
			sample.Members = sample.Members[:0]
			for _, member := range c.Members[first:c.Ends[i]] {
				sample.Members = append(sample.Members,
					dataset.Member{Kind: c.Kinds[member.Kind], Offset: member.Offset, Size: member.Size})
			}
			first = c.Ends[i]
		}
		if err := built.Add(sample); err != nil {
			return err
		}
	}
	return nil
}

// A labelling assigns labels to classes: a folder's samples have the index of its class among the
// class folders, and the samples of a shard with class numbers have those numbers. A class with a
// number and no folder is named by the number; if all samples have numbers, the folders are not
// classes.
type labelling struct {
	classes  []string // of the folders so far
	byFolder bool     // some sample has its folder's class
	numbers  int      // the largest class number, plus 1
}

// enter moves to the next folder; the root is a class only if it is the only folder.
func (l *labelling) enter(path string, alone bool) {
	class := dataset.ClassOf(path)
	if n := len(l.classes); (path != "" || alone) && (n == 0 || l.classes[n-1] != class) {
		l.classes = append(l.classes, class)
	}
}

// folder returns the label of the current folder; 0 in the root, which has no class if there
// are other folders.
func (l *labelling) folder() int { return max(0, len(l.classes)-1) }

// number records class numbers of samples.
func (l *labelling) number(labels []uint32) {
	if len(labels) > 0 {
		l.numbers = max(l.numbers, int(slices.Max(labels))+1)
	}
}

// names returns the names of the classes by label.
func (l *labelling) names() []string {
	names := l.classes
	if !l.byFolder {
		names = nil
	}
	for len(names) < l.numbers {
		names = append(names, strconv.Itoa(len(names)))
	}
	return names
}
