package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// The results of the BeeGFS client's ioctls. Numbers have the machine's byte order. A request's
// number contains the size of its structure.
//
// Source: BeeGFS, client_module/include/uapi/beegfs_client.h: struct BeegfsIoctl_GetStripeInfo_Arg,
// BeegfsIoctl_GetStripeTargetV2_Arg; BEEGFS_IOC_*.
const (
	stripeInfoBytes = 12 // u32 pattern, u32 chunk size, u16 targets, 2 bytes of padding
	// u32 index (in), u32 target or group, u32 primary and secondary target, u32 nodes; two names.
	stripeTargetBytes = 6*4 + 512

	requestStripeInfo   = 2<<30 | stripeInfoBytes<<16 | 'f'<<8 | 25
	requestStripeTarget = 2<<30 | stripeTargetBytes<<16 | 'f'<<8 | 26
)

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
	c := Component{End: math.MaxInt64, StripeBytes: int64(binary.NativeEndian.Uint32(info[4:]))}
	targets := binary.NativeEndian.Uint16(info[8:])
	if c.StripeBytes < minStripeBytes || targets == 0 {
		return Layout{}, fmt.Errorf("%s: impossible stripes: chunks of %d bytes on %d targets", path,
			c.StripeBytes, targets)
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
// which serves reads.
func stripeTarget(file device, i uint16) (int, error) {
	var answer [stripeTargetBytes]byte
	binary.NativeEndian.PutUint32(answer[:], uint32(i))
	if err := file.ioctl(requestStripeTarget, answer[:]); err != nil {
		return 0, err
	}
	if primary := binary.NativeEndian.Uint32(answer[8:]); primary != 0 {
		return targetNumber(primary), nil
	}
	return targetNumber(binary.NativeEndian.Uint32(answer[4:])), nil
}
