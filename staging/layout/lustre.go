package layout

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// lovAttribute is the extended attribute that holds a file's layout, readable by any user.
//
// Source: Lustre, lustre/llite/xattr.c, ll_getxattr_lov.
const lovAttribute = "lustre.lov"

// The parts of the attribute's structures. Numbers are little-endian.
//
// Source: Lustre, include/uapi/linux/lustre/lustre_user.h: struct lov_user_md_v1, lov_user_md_v3,
// lov_user_ost_data_v1, lov_comp_md_v1, lov_comp_md_entry_v1; enum lov_pattern,
// lov_comp_md_entry_flags, lcme_id.
const (
	magicV1       = 0x0BD10BD0
	magicV3       = 0x0BD30BD0 // V1 and a pool
	magicSpecific = 0x0BD50BD0 // V3, made by the user from a list of targets
	magicComp     = 0x0BD60BD0
	magicForeign  = 0x0BD70BD0
	magicSEL      = 0x0BD80BD0 // a composite that extends itself

	v1Bytes        = 32
	v3Bytes        = v1Bytes + poolBytes
	poolBytes      = 16
	objectBytes    = 24
	compBytes      = 32
	compEntryBytes = 48

	patternMDT      = 0x100
	patternForeign  = 0x400
	patternReleased = 0x80000000

	entryStale     = 0x1
	entryPreferred = 0x2
	// never set with LCME_FL_EXTENSION, the room that a self-extending layout may still use.
	entryInit   = 0x10
	entryParity = 0x80

	mirrorShift = 16 // the position of the mirror's number in a component's id
	mirrorMask  = 0x7FFF

	// minStripeBytes is LOV_MIN_STRIPE_SIZE; every stripe size is a multiple of it.
	minStripeBytes = 64 << 10
)

var errShort = errors.New("the layout ends too early")

// parseLustre parses the value of lustre.lov of a regular file.
//
// A component that was never written to has no targets yet and is left out, as are parity and stale
// mirrors; of several mirrors the one to read counts: a preferred one, else the first.
// Errors: an invalid value. The memory used is proportional to the value's length, whatever its
// content.
func parseLustre(value []byte) (Layout, error) {
	if len(value) < 4 {
		return Layout{}, errShort
	}
	// parts may overlap in a hostile value, but not in a real one
	objects := len(value) / objectBytes
	if magic := binary.LittleEndian.Uint32(value); magic == magicComp || magic == magicSEL {
		return parseComposite(value, &objects)
	}
	p, err := parsePlain(value, true, &objects)
	if err != nil {
		return Layout{}, err
	}
	l := Layout{Offline: p.released}
	l.add(p, 0, math.MaxInt64)
	return l, nil
}

// An entry is one row of a composite layout's table.
type entry struct {
	mirror     int
	flags      uint32
	start, end int64
	blob       []byte // a plain layout
}

func parseComposite(value []byte, objects *int) (l Layout, err error) {
	entries, err := parseEntries(value)
	if err != nil {
		return Layout{}, err
	}
	read := mirrorToRead(entries)
	for i, e := range entries {
		p, err := parsePlain(e.blob, e.flags&entryInit != 0, objects)
		if err != nil {
			return Layout{}, fmt.Errorf("component %d: %w", i, err)
		}
		l.Offline = l.Offline || p.released
		if e.mirror == read && e.flags&entryParity == 0 && e.flags&entryInit != 0 {
			l.add(p, e.start, e.end)
		}
	}
	return l, nil
}

func parseEntries(value []byte) (entries []entry, err error) {
	if len(value) < compBytes {
		return nil, errShort
	}
	count := int(binary.LittleEndian.Uint16(value[14:]))
	if len(value) < compBytes+count*compEntryBytes {
		return nil, errShort
	}
	for i := range count {
		row := value[compBytes+i*compEntryBytes:][:compEntryBytes]
		e := entry{
			mirror: int(binary.LittleEndian.Uint32(row) >> mirrorShift & mirrorMask),
			flags:  binary.LittleEndian.Uint32(row[4:]),
			start:  position(binary.LittleEndian.Uint64(row[8:])),
			end:    position(binary.LittleEndian.Uint64(row[16:])),
		}
		offset, size := uint64(binary.LittleEndian.Uint32(row[24:])),
			uint64(binary.LittleEndian.Uint32(row[28:]))
		if offset+size > uint64(len(value)) {
			return nil, fmt.Errorf("component %d: %w", i, errShort)
		}
		// An extension that has given all of its room away is empty.
		if e.start > e.end {
			return nil, fmt.Errorf("component %d ends before it starts", i)
		}
		e.blob = value[offset : offset+size]
		entries = append(entries, e)
	}
	return entries, nil
}

// position returns an offset in a file; all ones mean "no end".
func position(raw uint64) int64 { return int64(min(raw, math.MaxInt64)) }

// mirrorToRead returns the number of the mirror that a client reads: among those without a stale
// component, one that has a preferred component, else the lowest; the lowest of all if all are
// stale.
func mirrorToRead(entries []entry) int {
	stale, preferred := map[int]bool{}, map[int]bool{}
	var mirrors []int
	for _, e := range entries {
		mirrors = append(mirrors, e.mirror)
		stale[e.mirror] = stale[e.mirror] || e.flags&entryStale != 0
		preferred[e.mirror] = preferred[e.mirror] || e.flags&entryPreferred != 0
	}
	if len(mirrors) == 0 {
		return 0
	}
	rank := func(mirror int) int {
		switch {
		case stale[mirror]:
			return 2
		case preferred[mirror]:
			return 0
		}
		return 1
	}
	return slices.MinFunc(mirrors, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}

// A plain is a layout of one component; on the MDT, and elsewhere than in this file system
// (foreign), it has no targets.
type plain struct {
	released    bool
	stripeBytes int64
	targets     []int
}

// parsePlain parses a V1 or V3 layout. One that does not exist yet, or whose content is released,
// has no objects. objects is how many objects may still follow.
func parsePlain(blob []byte, made bool, objects *int) (plain, error) {
	if len(blob) < 4 {
		return plain{}, errShort
	}
	head := v1Bytes
	switch magic := binary.LittleEndian.Uint32(blob); magic {
	case magicForeign:
		return plain{}, nil
	case magicV1:
	case magicV3, magicSpecific:
		head = v3Bytes
	default:
		return plain{}, fmt.Errorf("the layout has the unknown magic %#08x", magic)
	}
	if len(blob) < head {
		return plain{}, errShort
	}
	pattern := binary.LittleEndian.Uint32(blob[4:])
	p := plain{
		released:    pattern&patternReleased != 0,
		stripeBytes: int64(binary.LittleEndian.Uint32(blob[24:])),
	}
	if !made || p.released || pattern&(patternMDT|patternForeign) != 0 {
		return p, nil
	}
	if p.stripeBytes == 0 || p.stripeBytes%minStripeBytes != 0 {
		return plain{}, fmt.Errorf("a stripe of %d bytes is not a multiple of 64 KiB", p.stripeBytes)
	}
	count := int(binary.LittleEndian.Uint16(blob[28:]))
	if len(blob) < head+count*objectBytes || count > *objects {
		return plain{}, errShort
	}
	*objects -= count
	for i := range count {
		raw := binary.LittleEndian.Uint32(blob[head+i*objectBytes+20:])
		p.targets = append(p.targets, targetNumber(raw))
	}
	return p, nil
}

// add appends the component described by p, if it holds data on targets.
func (l *Layout) add(p plain, start, end int64) {
	if start < end && len(p.targets) > 0 {
		l.Components = append(l.Components, Component{start, end, p.stripeBytes, p.targets})
	}
}
