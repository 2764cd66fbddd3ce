package posix

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRetry(t *testing.T) {
	calls := []error{unix.EINTR, os.NewSyscallError("open", unix.EINTR), unix.ENOENT}
	made := 0
	err := Retry(func() error {
		made++
		return calls[made-1]
	})
	if !errors.Is(err, fs.ErrNotExist) || made != len(calls) {
		t.Errorf("%d calls end with %v, want %d with %v", made, err, len(calls), unix.ENOENT)
	}
}

func TestTimespec(t *testing.T) {
	for _, seconds := range []int64{math.MinInt32, -1, 0, 1 << 31, 9223372036, 15032385535} {
		want := unix.Timespec{Sec: seconds, Nsec: 999999999}
		if got := Timespec(want.Nano()); got != want {
			t.Errorf("%v: %v", want, got)
		}
	}
}

func TestTypeOf(t *testing.T) {
	for number, want := range map[int64]FileSystemType{
		GPFSMagic: {"gpfs", Shared}, unix.TMPFS_MAGIC: {"tmpfs", Memory},
		// SMB2's number is negative where statfs returns 32 bits
		unix.SMB2_SUPER_MAGIC - 1<<32: {"smb2", Shared}, 1: {},
	} {
		if got := TypeOf(number); got != want {
			t.Errorf("%#x: %+v, want %+v", number, got, want)
		}
	}
}
