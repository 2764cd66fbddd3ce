package systems

import (
	"slices"

	"rankpool/scheduler"
)

// Packages finds out which samples of the packages that a pool loads in an epoch the ranks read in
// one piece. A package is divided by the ranks that its samples lie on; samples that the epoch does
// not draw after they were loaded are left out, and so is what is left of a package if it is a
// single sample.
//
// The zero Packages is ready for an epoch.
type Packages struct {
	of    map[scheduler.SampleID]int // the package that brought a sample in last
	n     int
	parts map[packagePart]scheduler.Package
}

type packagePart struct{ number, home int }

// Load adds the packages that were loaded, see Memory.Packages.
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

// Serve adds a draw for which a sample on rank home was read: the first since it was loaded.
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
