package stager

import (
	"cmp"
	"slices"

	"rankpool/scheduler/draw"
)

// packages are the groups of samples that a rank reads in one piece, for systems that have them,
// such as iCACHE. The plan lists them. While training runs, packages are written one at a time, as
// long as there is room, from samples that are in memory or else are read one by one. When the
// first draw of a package enters the window, one read brings in all of its samples. If the package
// is not ready by then, or cannot be read, its samples are read one by one when their draws enter
// the window.
//
// What is served does not depend on any of this.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-C, the packaging and the loading thread.
type packages struct {
	last     uint32
	writing  *pack
	written  int64            // room in use, including that of the one being written
	reading  map[uint32]*pack // by number
	failures failures
}

// pack is a package.
type pack struct {
	lane   *lane
	plan   *planned
	places draw.Package
	number uint32
	ready  bool
	late   bool            // it is no longer wanted
	into   []draw.SampleID // while it is read: the samples that this brings in
}

// PackageCount counts packages that were written and read, and their bytes.
type PackageCount struct {
	Writes, Reads         int
	WriteBytes, ReadBytes int64
}

// ids returns the samples of a package, in order.
func (p *pack) ids() []draw.SampleID {
	ids := make([]draw.SampleID, len(p.places))
	for i, place := range p.places {
		ids[i] = p.plan.IDs[place]
	}
	return ids
}

// position returns that of the first batch that needs the package.
func (p *pack) position() int64 { return p.plan.position(p.plan.BatchOf(int(p.places[0]))) }

// room returns how much the package takes on disk.
func (p *pack) room() (bytes int64) {
	cfg := &p.lane.stager.cfg
	for _, place := range p.places {
		bytes += cfg.Size(p.plan.IDs[place])
	}
	block := max(cfg.PackageBlockBytes, 1)
	return (bytes + block - 1) / block * block
}

// expectPackages queues what this rank owns of a plan's packages, except of those that begin before
// training does.
func (l *lane) expectPackages(p *planned) {
	if l.stager.cfg.PackageBytes <= 0 {
		return
	}
	from, _ := p.Range(p.from)
	already := len(l.packs)
	for _, all := range p.Packages() {
		var places draw.Package
		for _, place := range all {
			if p.Owner(int(place)) == l.stager.cfg.Rank {
				places = append(places, place)
			}
		}
		if places != nil && int(places[0]) >= from {
			l.packs = append(l.packs, &pack{lane: l, plan: p, places: places})
		}
	}
	slices.SortFunc(l.packs[already:], func(a, b *pack) int {
		return cmp.Compare(a.places[0], b.places[0])
	})
}

// pack starts to write the next package, if none is being written and there is room for it.
func (l *lane) pack() {
	k := &l.stager.packages
	if k.writing != nil || k.failures >= failuresMax {
		return
	}
	for _, p := range l.packs {
		if p.number != 0 {
			continue
		}
		if k.written+p.room() > l.stager.cfg.PackageBytes {
			return
		}
		k.last++
		p.number = k.last
		k.writing, k.written = p, k.written+p.room()
		ids := p.ids()
		found := make([]bool, len(ids))
		for i, id := range ids {
			found[i] = l.stager.copies.get(id).state == here
		}
		l.stager.emit(Pack{Package: p.number, IDs: ids, Here: found, Need: l.needOf(p.position())})
		return
	}
}

func (s *Stager) onPacked(e Packed) {
	p := s.packages.writing
	if p == nil || p.number != e.Package {
		return
	}
	s.packages.writing = nil
	s.packages.failures.note(e.Err)
	if p.ready = e.Err == nil; p.ready {
		p.count(PackageCount{Writes: 1, WriteBytes: e.Bytes})
	}
	if p.late || !p.ready {
		s.discard(p)
	}
}

func (p *pack) count(more PackageCount) {
	n := p.lane.packageCounts[p.plan.Epoch]
	n.Writes, n.WriteBytes = n.Writes+more.Writes, n.WriteBytes+more.WriteBytes
	n.Reads, n.ReadBytes = n.Reads+more.Reads, n.ReadBytes+more.ReadBytes
	p.lane.packageCounts[p.plan.Epoch] = n
}

// discard removes a package that is neither being written nor read.
func (s *Stager) discard(p *pack) {
	p.ready = false
	s.packages.written -= p.room()
	s.emit(Discard{p.number})
}

// dropPackages gives up the packages that begin before a position.
func (l *lane) dropPackages(position int64) {
	for len(l.packs) > 0 {
		p := l.packs[0]
		if p.position() >= position {
			return
		}
		l.packs = l.packs[1:]
		p.late = true
		if p.ready {
			l.stager.discard(p)
		}
	}
}

// unpack reads the packages that begin at places [lo, hi) of the current plan, which enter the
// window.
func (l *lane) unpack(lo, hi int) {
	l.dropPackages(l.cur.position(lo / l.cur.Batch))
	for len(l.packs) > 0 && l.packs[0].plan == l.cur && int(l.packs[0].places[0]) < hi {
		p := l.packs[0]
		l.packs = l.packs[1:]
		p.late = true
		if p.ready {
			l.read(p, hi)
		}
	}
}

// read reads a package. As in the system, its samples stay in memory until they are drawn; if
// memory is short, those that are not drawn before place hi are read one by one later.
func (l *lane) read(p *pack, hi int) {
	for _, place := range p.places {
		id := p.plan.IDs[place]
		if l.stager.copies.get(id).state != absent {
			continue
		}
		kept := l.stager.store.cache.Draw(l.own.soonest(&l.own, l.own.use(id, place)), l.stager.settle)
		if kept != Bypassed {
			l.own.unpacked[id] = true
		} else if int(place) >= hi {
			continue
		}
		l.stager.setState(id, coming, FromStorage)
		p.into = append(p.into, id)
	}
	if p.into == nil {
		l.stager.discard(p)
		return
	}
	l.stager.packages.reading[p.number] = p
	l.stager.emit(Unpack{
		Package: p.number, Layout: p.ids(), IDs: p.into, Need: l.needOf(p.position()),
	})
}

func (s *Stager) onUnpacked(e Unpacked) {
	p := s.packages.reading[e.Package]
	if p == nil {
		return
	}
	delete(s.packages.reading, e.Package)
	if !e.NoRoom {
		s.packages.failures.note(e.Err)
	}
	whole := e.Err == nil && !e.NoRoom
	if whole {
		p.count(PackageCount{Reads: 1, ReadBytes: e.Bytes})
	}
	for _, id := range p.into {
		if whole {
			s.arrive(id)
		} else {
			s.fetch(id, s.Demand(), FromStorage)
		}
	}
	s.discard(p)
}

// Packages returns the counts of the packages of a lane's epoch.
func (s *Stager) Packages(lane, epoch int) PackageCount {
	if l := s.lane(lane); l != nil {
		return l.packageCounts[epoch]
	}
	return PackageCount{}
}
