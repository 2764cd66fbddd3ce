package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// The results of the BeeGFS client's ioctls. Numbers have the machine's byte order. A request's
// number contains the size of its structure, which distinguishes the two versions of
// GET_STRIPETARGET.
//
// Source: BeeGFS, client_module/include/uapi/beegfs_client.h: struct BeegfsIoctl_GetStripeInfo_Arg,
// BeegfsIoctl_GetStripeTarget_Arg, BeegfsIoctl_GetStripeTargetV2_Arg; BEEGFS_IOC_*.
const (
	stripeInfoBytes     = 12        // u32 pattern, u32 chunk size, u16 targets, 2 bytes of padding
	stripeTargetV1Bytes = 3*2 + 256 // u16 index (in), u16 target, u16 node, the node's name
	// u32 index (in), u32 target or group, u32 primary and secondary target, u32 nodes; two names.
	stripeTargetV2Bytes = 6*4 + 512

	requestStripeInfo     = 2<<30 | stripeInfoBytes<<16 | 'f'<<8 | 25
	requestStripeTargetV1 = 2<<30 | stripeTargetV1Bytes<<16 | 'f'<<8 | 26
	requestStripeTargetV2 = 2<<30 | stripeTargetV2Bytes<<16 | 'f'<<8 | 26
)

// maxPattern is the last of the patterns, all of which stripe files: RAID0, RAID10, buddy mirror.
const maxPattern = 3

// readBeeGFS asks the BeeGFS client for the layout of the file at path; the zero Layout if path
// turns out not to be on BeeGFS. Opening does not wait for a file whose content is on a remote
// storage target; such a file is Offline.
func readBeeGFS(sys system, path string) (Layout, error) {
	file, err := sys.open(path)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return Layout{Offline: true}, nil
	case err != nil:
		return Layout{}, err
	}
	defer file.Close()
	var info [stripeInfoBytes]byte
	if err := file.ioctl(requestStripeInfo, info[:]); err != nil {
		if saysNothing(err) {
			return Layout{}, nil
		}
		return Layout{}, fmt.Errorf("%s: its stripes: %w", path, err)
	}
	if pattern := binary.NativeEndian.Uint32(info[:]); pattern < 1 || pattern > maxPattern {
		return Layout{}, fmt.Errorf("%s: unknown stripe pattern %d", path, pattern)
	}
	c := Component{End: math.MaxInt64, StripeBytes: int64(binary.NativeEndian.Uint32(info[4:]))}
	if c.StripeBytes < minStripeBytes {
		return Layout{}, fmt.Errorf("%s: its chunk size of %d bytes is less than 64 KiB", path,
			c.StripeBytes)
	}
	targets := binary.NativeEndian.Uint16(info[8:])
	if targets == 0 {
		return Layout{}, fmt.Errorf("%s: it has no targets", path)
	}
	for i := range targets {
		target, err := stripeTarget(file, i)
		if err != nil {
			return Layout{}, fmt.Errorf("%s: its target %d: %w", path, i, err)
		}
		c.Targets = append(c.Targets, target)
	}
	return Layout{Components: []Component{c}}, nil
}

// stripeTarget returns the id of the file's target number i; of a mirror group, its primary target,
// which serves reads. A client before version 6 knows only the first version of the request.
func stripeTarget(file device, i uint16) (int, error) {
	var v2 [stripeTargetV2Bytes]byte
	binary.NativeEndian.PutUint32(v2[:], uint32(i))
	err := file.ioctl(requestStripeTargetV2, v2[:])
	switch {
	case err == nil:
		if primary := binary.NativeEndian.Uint32(v2[8:]); primary != 0 {
			return targetNumber(primary), nil
		}
		return targetNumber(binary.NativeEndian.Uint32(v2[4:])), nil
	case !saysNothing(err):
		return 0, err
	}
	var v1 [stripeTargetV1Bytes]byte
	binary.NativeEndian.PutUint16(v1[:], i)
	if err := file.ioctl(requestStripeTargetV1, v1[:]); err != nil {
		return 0, err
	}
	return targetNumber(uint32(binary.NativeEndian.Uint16(v1[2:]))), nil
}
