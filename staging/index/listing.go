package index

import (
	"slices"

	"rankpool/staging/dataset"
)

// A listing is the content of one folder: its files, sub-folders and dangling links, each sorted by
// name, and the modification time that it had before it was read. It is immutable after its visit.
type listing struct {
	ModTime  int64
	Files    []scannedFile
	Folders  []subFolder
	Dangling []string // links that lead nowhere
	Others   bool     // it has hidden entries, or ones that are neither files nor folders
}

type scannedFile struct {
	Name          string
	Size, ModTime int64
}

type subFolder struct {
	Name string
	Link bool // reached by a symbolic link, so it may lead back
}

func (l *listing) sort() {
	slices.SortFunc(l.Files,
		func(a, b scannedFile) int { return dataset.CompareNames(a.Name, b.Name) })
	slices.SortFunc(l.Folders,
		func(a, b subFolder) int { return dataset.CompareNames(a.Name, b.Name) })
	slices.SortFunc(l.Dangling, dataset.CompareNames)
}
