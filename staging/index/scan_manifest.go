package index

import (
	"fmt"
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
	var samples, nameBytes int64
	for _, in := range s.folders {
		for i := range in.Files {
			n := int64(1)
			if sh := d.shards[&in.Files[i]]; sh != nil {
				n = int64(len(sh.contents.Samples))
			} else if d.other[&in.Files[i]] {
				continue
			}
			samples += n
			nameBytes += n * int64(len(in.Files[i].Name))
		}
	}
	if samples == 0 {
		return nil, fmt.Errorf("staging: %s holds no sample", s.root)
	}
	built, err := dataset.NewBuilder(s.root, samples, nameBytes)
	if err != nil {
		return nil, fmt.Errorf("staging: %s: %w", s.root, err)
	}
	if d.otherKinds {
		built.OtherKinds()
	}
	var labels labelling
	for i, in := range s.folders {
		built.AddFolder(dataset.Folder{Path: in.path, ModTime: in.ModTime})
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
			if sh != nil {
				built.AddShard(file.Name, labels.folder(), file.ModTime, sh.format, sh.contents)
			} else {
				built.AddFile(file.Name, labels.folder(), file.Size, file.ModTime)
			}
		}
	}
	return built.Manifest(labels.names()), nil
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
func (l *labelling) folder() uint32 { return uint32(max(0, len(l.classes)-1)) }

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
