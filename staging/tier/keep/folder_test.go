package keep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCheck compares Check with OpenFolder: it finds the same, and makes nothing.
func TestCheck(t *testing.T) {
	for _, mode := range []uint32{0o700, 0o755, 0o777, 0o1777} {
		for _, own := range []uint32{0, 0o700, 0o711, 0o755} { // 0: there is no part of this user's
			for _, share := range []bool{false, true} {
				dir := t.TempDir()
				part := filepath.Join(dir, strconv.Itoa(os.Geteuid()))
				if own != 0 {
					if err := errors.Join(unix.Mkdir(part, 0o700), unix.Chmod(part, own)); err != nil {
						t.Fatal(err)
					}
				}
				if err := unix.Chmod(dir, mode); err != nil {
					t.Fatal(err)
				}
				found := Check(dir, share)
				if _, err := os.Lstat(part); own == 0 && !errors.Is(err, os.ErrNotExist) {
					t.Errorf("mode %04o: Check has made %s (%v)", mode, part, err)
				}
				folder, err := OpenFolder(dir, 1<<20, share)
				if fmt.Sprint(found) != fmt.Sprint(err) {
					t.Errorf("mode %04o, part %04o, share %v: %v; OpenFolder: %v", mode, own, share,
						found, err)
				}
				if err == nil {
					_ = folder.Close()
				}
			}
		}
	}
}
