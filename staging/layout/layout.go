// Package layout finds the storage targets that hold a file: the OSTs and the MDT of Lustre, the
// targets of BeeGFS.
//
// It needs no privileges: it reads the extended attribute lustre.lov, and uses the ioctls of the
// BeeGFS client. A layout is advice. On every other file system there is none, and reading works
// the same, without a notion of targets.
package layout

import (
	"math"
	"slices"
)

// The targets without a number.
const (
	NoTarget = -1 // unknown, or on no target
	// Lustre's metadata target of the file, which holds its first bytes (DoM); the layout does not say
	// which MDT.
	MDT = -2
)

// maxTarget is the highest valid target number. Targets are kept in 16 bits, whose two highest
// values are MDT and NoTarget; Lustre has at most 65,500 OSTs, and BeeGFS numbers
// targets from 1.
const maxTarget = 0xFFFD

// targetNumber converts a target's number; an invalid one, such as that of a lost object, or from
// hostile bytes, becomes NoTarget.
func targetNumber(raw uint32) int {
	if raw > maxTarget {
		return NoTarget
	}
	return int(raw)
}

// The file systems that have layouts.
const (
	Lustre = "lustre"
	BeeGFS = "beegfs"
)

// A Kind is how a file's bytes are spread, in its file system's terms.
type Kind string

// The kinds of layouts.
const (
	KindNone Kind = "" // the file system has no layouts
	// Stripes, round robin over the targets; with one target, the whole file.
	KindRAID0 Kind = "raid0"
	// Lustre: different stripes in different parts of the file (PFL, SEL).
	KindComposite   Kind = "composite"
	KindDoM         Kind = "dom"         // Lustre: a composite whose first bytes are on the MDT
	KindMirrored    Kind = "mirrored"    // Lustre: several copies (FLR)
	KindForeign     Kind = "foreign"     // Lustre: the bytes are not in this file system
	KindRAID10      Kind = "raid10"      // BeeGFS: stripes, each on two targets
	KindBuddyMirror Kind = "buddymirror" // BeeGFS: stripes, each on a mirror group
)

// A Layout is the list of targets that a file is on. The zero value is an unknown layout. It is
// read-only.
type Layout struct {
	FileSystem string // Lustre, BeeGFS, or "" for other file systems
	Kind       Kind
	Mirrors    int         // copies of the file; 1 unless Kind is KindMirrored
	Components []Component // in order of Start, without overlap; those that hold no data are left out
	// Lustre: the content is only in the archive (HSM); a read waits until it has been restored
	Released bool
	// BeeGFS: the content is only on a remote storage target; opening fails until it has been restored
	Stub bool
}

// A Component is a part of a file, [Start, End) in bytes, in stripes of one size over one list of
// targets.
type Component struct {
	Start, End  int64 // End is math.MaxInt64 if the component has none
	StripeBytes int64 // at least 64 KiB
	// OST indices, BeeGFS target ids, or MDT; stripe s of the file is on Targets[s % len(Targets)]
	Targets []int
}

// Offline reports whether the content must be restored from an archive before the file can be read.
func (l Layout) Offline() bool { return l.Released || l.Stub }

// Targets returns all targets of the file, each once, in the order of the file's bytes. The caller
// owns the slice.
func (l Layout) Targets() []int {
	var all []int
	seen := map[int]bool{}
	for _, c := range l.Components {
		for _, target := range c.Targets {
			if !seen[target] {
				seen[target] = true
				all = append(all, target)
			}
		}
	}
	return all
}

// TargetAt returns the target that holds the byte at offset, NoTarget if unknown.
func (l Layout) TargetAt(offset int64) int {
	if c, _ := l.at(offset); c != nil {
		return c.targetAt(offset)
	}
	return NoTarget
}

// at returns the component that holds offset, and its end. If there is none, it returns nil, and
// where the next component starts.
func (l Layout) at(offset int64) (c *Component, end int64) {
	after, _ := slices.BinarySearchFunc(l.Components, offset, func(c Component, offset int64) int {
		if c.End <= offset {
			return -1
		}
		return 1
	})
	switch {
	case after == len(l.Components):
		return nil, math.MaxInt64
	case l.Components[after].Start > offset:
		return nil, l.Components[after].Start
	}
	return &l.Components[after], l.Components[after].End
}

// targetAt returns the target of a byte of the component. Stripes count from the start of the file,
// even in a component that begins later.
//
// Source: Lustre, lustre/lov/lov_offset.c, lov_stripe_number; BeeGFS, StripePattern.h,
// getStripeTargetIndex.
func (c *Component) targetAt(offset int64) int {
	return c.Targets[offset/c.StripeBytes%int64(len(c.Targets))]
}
