package systems

import (
	"slices"

	"rankpool/scheduler"
)

// Packages finds the samples that ranks read in one piece, among the packages that a pool loads in
// an epoch. It splits a package by the ranks that its samples lie on. It leaves out samples that
// the epoch does not draw after they were loaded, and parts with a single sample.
//
// The zero Packages is ready for an epoch.
type Packages struct {
	of    map[scheduler.SampleID]int // the package that brought a sample in last
	n     int
	parts map[packagePart]scheduler.Package
}

type packagePart struct{ number, home int }

// Load adds loaded packages, see Memory.Packages.
func (p *Packages) Load(loaded [][]scheduler.SampleID) {
	if p.of == nil {
		p.of, p.parts = map[scheduler.SampleID]int{}, map[packagePart]scheduler.Package{}
	}
	for _, ids := range loaded {
		for _, id := range ids {
			p.of[id] = p.n
		}
		p.n++
	}
}

// Serve adds the first draw of a sample since it was loaded: at a place of the epoch, on rank home.
func (p *Packages) Serve(place int, id scheduler.SampleID, home int) {
	if number, in := p.of[id]; in {
		part := packagePart{number, home}
		p.parts[part] = append(p.parts[part], int32(place))
		delete(p.of, id)
	}
}

// All returns the packages of the epoch in the order of their first draws.
func (p *Packages) All() []scheduler.Package {
	var all []scheduler.Package
	for _, places := range p.parts {
		if len(places) > 1 {
			all = append(all, places)
		}
	}
	slices.SortFunc(all, func(a, b scheduler.Package) int { return int(a[0] - b[0]) })
	return all
}
