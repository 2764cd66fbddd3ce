package systems

import (
	"slices"

	"rankpool/scheduler/draw"
)

// Packages finds the samples that ranks read in one piece, among the packages that a pool loads in
// an epoch. It splits a package by the ranks that its samples lie on. It leaves out samples that
// the epoch does not draw after they were loaded, and parts with a single sample.
//
// The zero Packages is ready for an epoch.
type Packages struct {
	of    map[draw.SampleID]int // the package that brought a sample in last
	n     int
	parts map[packagePart]draw.Package
}

type packagePart struct{ number, home int }

// Load adds loaded packages, see Memory.Packages.
func (p *Packages) Load(loaded [][]draw.SampleID) {
	if p.of == nil {
		p.of, p.parts = map[draw.SampleID]int{}, map[packagePart]draw.Package{}
	}
	for _, ids := range loaded {
		for _, id := range ids {
			p.of[id] = p.n
		}
		p.n++
	}
}

// Serve adds the first draw of a sample since it was loaded: at a place of the epoch, on rank home.
func (p *Packages) Serve(place int, id draw.SampleID, home int) {
	if number, in := p.of[id]; in {
		part := packagePart{number, home}
		p.parts[part] = append(p.parts[part], int32(place))
		delete(p.of, id)
	}
}

// All returns the packages of the epoch in the order of their first draws.
func (p *Packages) All() []draw.Package {
	var all []draw.Package
	for _, places := range p.parts {
		if len(places) > 1 {
			all = append(all, places)
		}
	}
	slices.SortFunc(all, func(a, b draw.Package) int { return int(a[0] - b[0]) })
	return all
}
