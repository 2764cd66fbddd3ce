package rank

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"rankpool/cmd/rankpool/internal/memory"
)

// addressSpaceSlack is the address space that a rank needs in addition once it has its slab:
// manifests, stacks, the heap.
const addressSpaceSlack = 512 << 20

// CheckAddressSpace returns an error where "ulimit -v" leaves less than a process needs.
func CheckAddressSpace(needBytes uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil {
		return nil //nolint:nilerr // no such limit
	}
	return addressSpaceError(limit.Cur, needBytes)
}

func addressSpaceError(limit, needBytes uint64) error {
	if limit >= needBytes { // no limit is the largest number
		return nil
	}
	return fmt.Errorf(
		"this shell limits a process to %s of address space (ulimit -v), and it needs %s: "+
			"use \"ulimit -v unlimited\", or limit what is in memory by other means",
		memory.Text(int64(limit)), memory.Text(int64(needBytes)))
}

// checkSlab returns an error if a slab would not fit below the limit of "ulimit -v", which can kill
// a process at any later time.
func checkSlab(slabBytes int64) error {
	text, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) == 0 {
		return nil //nolint:nilerr // unknown without /proc
	}
	pages, _ := strconv.ParseUint(string(fields[0]), 10, 64)
	return CheckAddressSpace(pages*uint64(os.Getpagesize()) + uint64(slabBytes) + addressSpaceSlack)
}
