package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/slurm"
)

// nobody is the number of another user.
const nobody = 65534

// TestCheckFolder checks whose folders are accepted, and that no other user may be able to change a
// part of their paths.
func TestCheckFolder(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, base string) (path string)
		want string // in the error; "": there is none
	}{
		"own": {func(t *testing.T, base string) string { return folder(t, base, "s", 0o700) }, ""},
		"in a sticky one": {func(t *testing.T, base string) string {
			return folder(t, folder(t, base, "shm", 0o777|os.ModeSticky), "s", 0o755)
		}, ""},
		"behind a link": {func(t *testing.T, base string) string {
			folder(t, folder(t, base, "real", 0o755), "s", 0o700)
			return filepath.Join(link(t, base, "real"), "s")
		}, ""},
		"not there": {func(t *testing.T, base string) string {
			return filepath.Join(base, "s")
		}, "no such file"},
		"for all": {func(t *testing.T, base string) string {
			return folder(t, base, "s", 0o777)
		}, "can be written to by other users (mode 0777)"},
		"for all, and sticky": {func(t *testing.T, base string) string {
			return folder(t, base, "s", 0o777|os.ModeSticky)
		}, "can be written to by other users (mode 1777)"},
		"for the group": {func(t *testing.T, base string) string {
			return folder(t, base, "s", 0o770)
		}, "can be written to by other users (mode 0770)"},
		"in one for all": {func(t *testing.T, base string) string {
			return folder(t, folder(t, base, "shm", 0o777), "s", 0o700)
		}, "shm can be written to by other users"},
		"a link": {func(t *testing.T, base string) string {
			folder(t, base, "s", 0o700)
			return link(t, base, "s")
		}, "is a symbolic link, not a folder"},
		"a ring of links": {func(t *testing.T, base string) string {
			return filepath.Join(link(t, base, "link"), "s")
		}, "is a symbolic link, not a folder"},
		"a file": {func(t *testing.T, base string) string {
			return file(t, base, "s")
		}, "s is not a folder"},
		"another user's": {func(t *testing.T, base string) string {
			return foreign(t, folder(t, base, "s", 0o700))
		}, "belongs to user"},
		"in another user's": {func(t *testing.T, base string) string {
			return filepath.Join(
				foreign(t, filepath.Dir(folder(t, folder(t, base, "a", 0o755), "s", 0o700))), "s")
		}, "belongs to user"},
		"another user's link": {func(t *testing.T, base string) string {
			folder(t, base, "s", 0o700)
			return foreign(t, link(t, base, "s"))
		}, "is a symbolic link"},
		"behind another's link": {func(t *testing.T, base string) string {
			folder(t, folder(t, base, "real", 0o755), "s", 0o700)
			return filepath.Join(foreign(t, link(t, base, "real")), "s")
		}, "is a symbolic link of user"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			path := c.make(t, base)
			if os.Geteuid() != 0 && strings.Contains(name, "nother") {
				path, c.want = "/usr", "belongs to user 0" // an existing folder of another user
			}
			err := CheckFolder(path)
			if (err == nil) != (c.want == "") ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func folder(t *testing.T, base, name string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(base, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, base, to string) string {
	t.Helper()
	path := filepath.Join(base, "link")
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func file(t *testing.T, base, name string) string {
	t.Helper()
	path := filepath.Join(base, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// foreign gives path to another user, which only root can do, and returns it. Run as another user,
// the tests cover only modes and links.
func foreign(t *testing.T, path string) string {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := os.Lchown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestSessionOfAnotherUser checks that a session's folder is refused if another user created it
// first, as a folder for everyone or as a link.
func TestSessionOfAnotherUser(t *testing.T) {
	job := slurm.Job{JobID: "4711"}
	for _, kind := range []string{"folder", "link"} {
		base := t.TempDir()
		name := Name(true, os.Getuid(), job, 1)
		if kind == "folder" {
			foreign(t, folder(t, base, name, 0o777))
		} else {
			folder(t, base, "mine", 0o700)
			if err := os.Symlink("mine", filepath.Join(base, name)); err != nil {
				t.Fatal(err)
			}
			foreign(t, filepath.Join(base, name))
		}
		err := CheckFolder(filepath.Join(base, name))
		if err == nil || !strings.Contains(err.Error(), "is not safe") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
