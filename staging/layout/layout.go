// Package layout finds the storage targets that hold a file: the OSTs of Lustre, the targets of
// BeeGFS.
//
// It needs no privileges: it reads the extended attribute lustre.lov, and uses the ioctls of the
// BeeGFS client. A layout is advice. On every other file system there is none, and reading works
// the same, without a notion of targets.
package layout

// NoTarget is the target of what is on an unknown one, or on none: Lustre's metadata servers hold
// some (DoM).
const NoTarget = -1

// maxTarget is the highest valid target number. Targets are kept in 16 bits, whose highest value is
// NoTarget; Lustre has at most 65,500 OSTs, and BeeGFS numbers targets from 1.
const maxTarget = 0xFFFD

// targetNumber converts a target's number; an invalid one, such as that of a lost object, or from
// hostile bytes, becomes NoTarget.
func targetNumber(raw uint32) int {
	if raw > maxTarget {
		return NoTarget
	}
	return int(raw)
}

// A Layout is the list of targets that a file is on. The zero value is an unknown layout. It is
// read-only.
type Layout struct {
	Components []Component // those on no target are left out
	// the content must be restored from an archive first: released (HSM) on Lustre, a stub on BeeGFS
	Offline bool
}

// A Component is a part of a file, [Start, End) in bytes, in stripes of one size over one list of
// targets.
type Component struct {
	Start, End  int64 // End is math.MaxInt64 if the component has none
	StripeBytes int64 // at least 64 KiB
	// OST indices or BeeGFS target ids; stripe s of the file is on Targets[s % len(Targets)]
	Targets []int
}

// TargetAt returns the target that holds the byte at offset, NoTarget if unknown.
func (l Layout) TargetAt(offset int64) int {
	for i := range l.Components {
		if c := &l.Components[i]; c.Start <= offset && offset < c.End {
			return c.targetAt(offset)
		}
	}
	return NoTarget
}

// targetAt returns the target of a byte of the component. Stripes count from the start of the file,
// even in a component that begins later.
//
// Source: Lustre, lustre/lov/lov_offset.c, lov_stripe_number; BeeGFS, StripePattern.h,
// getStripeTargetIndex.
func (c *Component) targetAt(offset int64) int {
	return c.Targets[offset/c.StripeBytes%int64(len(c.Targets))]
}
