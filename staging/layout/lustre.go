package layout

import (
	"encoding/binary"
	"fmt"
	"math"
)

// lovAttribute is the extended attribute that holds a file's layout, readable by any user.
//
// Source: Lustre, lustre/llite/xattr.c, ll_getxattr_lov.
const lovAttribute = "lustre.lov"

// The parts of the attribute's structures. Numbers are little-endian.
//
// Source: Lustre, include/uapi/linux/lustre/lustre_user.h: enum lov_pattern,
// lov_comp_md_entry_flags.
const (
	magicV1       = 0x0BD10BD0
	magicV3       = 0x0BD30BD0 // V1 and a pool
	magicSpecific = 0x0BD50BD0 // V3, made by the user from a list of targets
	magicComp     = 0x0BD60BD0
	magicForeign  = 0x0BD70BD0
	magicSEL      = 0x0BD80BD0 // a composite that extends itself

	v1Bytes        = 32
	poolBytes      = 16
	objectBytes    = 24
	compBytes      = 32
	compEntryBytes = 48

	patternMDT      = 0x100
	patternForeign  = 0x400
	patternReleased = 0x80000000

	entryStale = 0x1
	// never set with LCME_FL_EXTENSION, the room that a self-extending layout may still use.
	entryInit   = 0x10
	entryParity = 0x80

	// minStripeBytes is LOV_MIN_STRIPE_SIZE.
	minStripeBytes = 64 << 10
)

// plainHead is struct lov_user_md_v1.
type plainHead struct {
	Magic, Pattern uint32
	Object         [16]byte
	StripeBytes    uint32
	Stripes        uint16
	Generation     uint16
}

// object is struct lov_user_ost_data_v1.
type object struct {
	ID     [20]byte
	Target uint32
}

// compositeHead is struct lov_comp_md_v1.
type compositeHead struct {
	Magic, Bytes, Generation uint32
	Flags, Entries           uint16
	Rest                     [16]byte
}

// compositeEntry is struct lov_comp_md_entry_v1.
type compositeEntry struct {
	ID, Flags     uint32
	Start, End    uint64 // all ones: no end
	Offset, Bytes uint32 // of a plain layout in the value
	Rest          [16]byte
}

// decode decodes the structure that starts at a place in value.
func decode(value []byte, at int, into any) error {
	if _, err := binary.Decode(value[min(at, len(value)):], binary.LittleEndian, into); err != nil {
		return fmt.Errorf("the layout ends too early, after %d bytes", len(value))
	}
	return nil
}

// parseLustre parses the value of lustre.lov of a regular file.
//
// A component that was never written to has no targets yet and is left out, as are parity and stale
// mirrors; of several mirrors the first counts. Errors: an invalid value.
func parseLustre(value []byte) (l Layout, err error) {
	var head compositeHead
	if err := decode(value, 0, &head.Magic); err != nil {
		return Layout{}, err
	}
	if head.Magic != magicComp && head.Magic != magicSEL {
		err := l.addPlain(value, 0, math.MaxInt64)
		return l, err
	}
	if err := decode(value, 0, &head); err != nil {
		return Layout{}, err
	}
	for i := range int(head.Entries) {
		var e compositeEntry
		err := decode(value, compBytes+i*compEntryBytes, &e)
		if err == nil && e.Flags&(entryInit|entryStale|entryParity) == entryInit {
			blob := value[min(int(e.Offset), len(value)):]
			err = l.addPlain(blob[:min(int(e.Bytes), len(blob))],
				int64(min(e.Start, math.MaxInt64)), int64(min(e.End, math.MaxInt64)))
		}
		if err != nil {
			return Layout{}, fmt.Errorf("component %d: %w", i, err)
		}
	}
	return l, nil
}

// addPlain adds the component [start, end) that a V1 or V3 layout describes. One on the MDT, and
// elsewhere than in this file system (foreign), has no targets; if its content is released, it has
// no objects.
func (l *Layout) addPlain(blob []byte, start, end int64) error {
	var head plainHead
	if err := decode(blob, 0, &head.Magic); err != nil || head.Magic == magicForeign {
		return err
	}
	at := v1Bytes
	switch head.Magic {
	case magicV1:
	case magicV3, magicSpecific:
		at += poolBytes
	default:
		return fmt.Errorf("the layout has the unknown magic %#08x", head.Magic)
	}
	if err := decode(blob, 0, &head); err != nil {
		return err
	}
	if head.Pattern&patternReleased != 0 {
		l.Offline = true
		return nil
	}
	if head.Pattern&(patternMDT|patternForeign) != 0 {
		return nil
	}
	if head.StripeBytes < minStripeBytes {
		return fmt.Errorf("a stripe of %d bytes is less than 64 KiB", head.StripeBytes)
	}
	c := Component{Start: start, End: end, StripeBytes: int64(head.StripeBytes)}
	for i := range int(head.Stripes) {
		var o object
		if err := decode(blob, at+i*objectBytes, &o); err != nil {
			return err
		}
		c.Targets = append(c.Targets, targetNumber(o.Target))
	}
	if start < end && len(c.Targets) > 0 {
		l.Components = append(l.Components, c)
	}
	return nil
}
