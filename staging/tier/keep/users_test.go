package keep

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
)

// The users of these tests. alice and bob are members of the group that may read the data.
const (
	alice, bob, eve = 20001, 20002, 20003
	project         = 21000
	userSamples     = 300 // 6 groups
)

// A job is what a process does as another user.
type job struct {
	What              string // fill (find, and write what is not there), find, list or force
	Dir, Tags, Source string
	Names             []string // to force
}

// outcome is the result of a job.
type outcome struct {
	Counts Counts
	Found  int
	Err    string
}

func TestMain(m *testing.M) {
	if text := os.Getenv("RANKPOOL_TEST_JOB"); text != "" {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			panic(err)
		}
		out, err := json.Marshal(j.run())
		if err != nil {
			panic(err)
		}
		fmt.Println(string(out))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func (j job) run() (out outcome) {
	if j.What == "list" {
		names, err := os.ReadDir(j.Dir)
		return outcome{Found: len(names), Err: fmt.Sprint(err)}
	}
	if j.What == "force" {
		return j.force()
	}
	folder, err := OpenFolder(j.Dir, 1<<30, true)
	if err != nil {
		return outcome{Err: err.Error()}
	}
	s, err := folder.Open(Set{
		Identity: "shared", Samples: userSamples, Size: size, Ranks: 1, TagsDir: j.Tags,
		Path: func(id draw.SampleID) string { return sourceOf(j.Source, id) },
		Log:  slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return outcome{Err: err.Error()}
	}
	for id := range draw.SampleID(userSamples) {
		into, done := make([]byte, size(id)), make(chan error, 1)
		if s.Read(id, into, func(err error) { done <- err }) && <-done == nil {
			if string(into) != string(sample(id)) {
				return outcome{Err: "wrong bytes"}
			}
			out.Found++
		} else if j.What == "fill" {
			s.Write(id, sample(id))
		}
	}
	out.Counts = s.Close(time.Minute)
	return out
}

// force tries to open files in another user's part whose names are known, and to create names
// there. Found is how often that succeeds.
func (j job) force() (out outcome) {
	for i, called := range j.Names {
		path, own := filepath.Join(j.Dir, called), filepath.Join(j.Tags, strconv.Itoa(i))
		_ = os.Link(path, own) // the kernel may allow it: then the link is not readable
		for _, try := range []func() (*os.File, error){
			func() (*os.File, error) { return os.Open(path) },
			func() (*os.File, error) { return os.Open(own) },
			func() (*os.File, error) { return os.OpenFile(path, os.O_WRONLY, 0) },
			func() (*os.File, error) { return os.Create(path + "0") },
		} {
			if f, err := try(); err == nil {
				out.Found++
				out.Err += f.Name() + " "
				_ = f.Close()
			}
		}
		for _, err := range []error{
			os.Remove(path), os.Rename(path, path+"1"), os.Symlink(own, path+"2"),
		} {
			if err == nil {
				out.Found++
			}
		}
	}
	return out
}

// sourceOf is the file on storage that a sample is read from.
func sourceOf(source string, id draw.SampleID) string {
	return filepath.Join(source, strconv.Itoa(int(id%10)))
}

// A node has a folder set up as a centre does, users with a cache folder each, and data.
type node struct {
	t                  *testing.T
	dir, elsewhere     string // DIR on this node and on another node
	source, home, prog string
}

func newNode(t *testing.T, mode os.FileMode) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test takes other users' parts: run it as root")
	}
	top, err := os.MkdirTemp("/tmp", "rankpool-users-") //nolint:usetesting // others enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	n := &node{
		t: t, dir: top + "/dir", elsewhere: top + "/elsewhere", source: top + "/source",
		home: top + "/home", prog: top + "/prog",
	}
	n.must(os.Chmod(top, 0o755))
	for _, dir := range []string{n.dir, n.elsewhere, n.source, n.home} {
		n.must(mkdirAs(dir, 0o755))
	}
	n.must(os.Chmod(n.dir, 0o777|os.ModeSticky))
	n.must(os.Chmod(n.elsewhere, 0o777|os.ModeSticky))
	for id := range draw.SampleID(10) {
		path := sourceOf(n.source, id)
		n.must(os.WriteFile(path, nil, 0o600))
		n.must(os.Chown(path, alice, project))
		n.must(os.Chmod(path, mode))
	}
	for _, uid := range []int{alice, bob, eve} {
		n.must(mkdirOf(n.tags(uid), uid))
	}
	self, err := os.ReadFile("/proc/self/exe")
	n.must(err)
	n.must(os.WriteFile(n.prog, self, 0o755))
	n.must(os.Chmod(n.prog, 0o755))
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) tags(uid int) string { return filepath.Join(n.home, strconv.Itoa(uid)) }

func (n *node) part(uid int) string { return filepath.Join(n.dir, strconv.Itoa(uid)) }

// groups returns a user's published files.
func (n *node) groups(uid int) (paths []string) {
	n.t.Helper()
	all, err := filepath.Glob(n.part(uid) + "/*")
	n.must(err)
	for _, path := range all {
		if len(filepath.Base(path)) == 64 {
			paths = append(paths, path)
		}
	}
	return paths
}

// as runs a job as a user.
func (n *node) as(uid int, what, dir string) outcome {
	n.t.Helper()
	return n.asJob(uid, job{What: what, Dir: dir, Tags: n.tags(uid), Source: n.source})
}

func (n *node) asJob(uid int, j job) outcome {
	n.t.Helper()
	text, err := json.Marshal(j)
	n.must(err)
	cmd := exec.Command(n.prog)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "RANKPOOL_TEST_JOB="+string(text))
	who := &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	if uid != eve {
		who.Groups = []uint32{project}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	var log strings.Builder
	cmd.Stderr = &log
	printed, err := cmd.Output()
	var out outcome
	if err == nil {
		err = json.Unmarshal(printed, &out)
	}
	if err != nil {
		n.t.Errorf("%s as %d: %v, %s%s", j.What, uid, err, printed, &log)
	}
	return out
}

// fill makes alice keep copies on the node, and bob learn the data's names and tags on another
// node.
func (n *node) fill() {
	n.t.Helper()
	for _, c := range []struct {
		uid int
		dir string
	}{{alice, n.dir}, {bob, n.elsewhere}} {
		if out := n.as(c.uid, "fill", c.dir); out.Err != "" || out.Counts.Writes != userSamples {
			n.t.Fatalf("%d fills: %+v", c.uid, out)
		}
	}
}

func TestAnotherUserBeginsWarm(t *testing.T) {
	for mode, want := range map[os.FileMode]os.FileMode{0o644: 0o444, 0o640: 0o440} {
		n := newNode(t, mode)
		n.fill()
		if out := n.as(bob, "find", n.dir); out.Found != userSamples || out.Err != "" {
			t.Errorf("mode %o: %+v", mode, out)
		}
		for _, path := range n.groups(alice) {
			var st unix.Stat_t
			n.must(unix.Stat(path, &st))
			if os.FileMode(st.Mode&0o7777) != want || want == 0o440 && st.Gid != project {
				t.Errorf("data of mode %o, copies of mode %o and group %d", mode, st.Mode, st.Gid)
			}
		}
		if len(n.groups(bob)) != 0 {
			t.Error("bob has copies of what alice has copies of")
		}
	}
}

// TestWhoMayNotReadTheDataGetsNothing checks that knowing names does not help, however they became
// known.
func TestWhoMayNotReadTheDataGetsNothing(t *testing.T) {
	n := newNode(t, 0o640)
	n.fill()
	told, err := filepath.Glob(n.tags(bob) + "/*") // bob gives eve all that he knows
	n.must(err)
	for _, path := range told {
		text, err := os.ReadFile(path)
		n.must(err)
		copied := filepath.Join(n.tags(eve), filepath.Base(path))
		n.must(os.WriteFile(copied, text, 0o600))
		n.must(os.Chown(copied, eve, eve))
	}
	if out := n.as(eve, "find", n.dir); out.Found != 0 || out.Err != "" {
		t.Errorf("with the names: %+v", out)
	}
	out := n.as(eve, "list", n.part(alice))
	if out.Found != 0 || !strings.Contains(out.Err, "denied") {
		t.Errorf("a list: %+v", out)
	}
}

// TestNamesThatAreKnownOpenNothing gives eve, who may not read the data, the name of each file in
// alice's part, whether it was disclosed, guessed, or belongs to a group that is not shared. She
// can neither read nor link nor replace a file, nor create a name in that part.
func TestNamesThatAreKnownOpenNothing(t *testing.T) {
	for _, mode := range []os.FileMode{0o640, 0o600} {
		n := newNode(t, mode)
		n.fill()
		all, err := os.ReadDir(n.part(alice))
		n.must(err)
		var names []string
		for _, entry := range all {
			names = append(names, entry.Name())
		}
		if len(names) < 6 {
			t.Fatalf("mode %o: alice has the files %v", mode, names)
		}
		out := n.asJob(eve, job{
			What: "force", Dir: n.part(alice), Tags: n.tags(eve), Names: append(names, "7", "group-7"),
		})
		if out.Found != 0 {
			t.Errorf("mode %o: eve succeeds %d times: %s", mode, out.Found, out.Err)
		}
		if out := n.as(alice, "find", n.dir); out.Found != userSamples {
			t.Errorf("mode %o: alice finds %+v", mode, out)
		}
	}
}

// TestDataWithAccessControlListsAreNotShared checks that a list on the data keeps copies private,
// whatever their mode is.
func TestDataWithAccessControlListsAreNotShared(t *testing.T) {
	n := newNode(t, 0o644)
	for id := range draw.SampleID(10) {
		n.must(unix.Setxattr(sourceOf(n.source, id), "system.posix_acl_access", readableBy(bob), 0))
	}
	n.fill()
	wantOnlyAlice(t, n)
}

// wantOnlyAlice checks that alice finds her copies, and that nobody else can.
func wantOnlyAlice(t *testing.T, n *node) {
	t.Helper()
	if names := n.groups(alice); len(names) != 0 {
		t.Errorf("%d groups have names that others can use", len(names))
	}
	if out := n.as(bob, "find", n.dir); out.Found != 0 {
		t.Errorf("bob: %+v", out)
	}
	if out := n.as(alice, "find", n.dir); out.Found != userSamples {
		t.Errorf("alice herself: %+v", out)
	}
}

// readableBy returns the access control list of a file that its owner can write, and a user and
// everybody can read.
func readableBy(uid int) []byte {
	list := binary.LittleEndian.AppendUint32(nil, 2) // the version
	const none = math.MaxUint32
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, none}, {2, 4, uint32(uid)}, {4, 4, none}, {16, 4, none}, {32, 4, none}} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.perm)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	return list
}

func TestDataThatNobodyElseMayReadAreNotShared(t *testing.T) {
	n := newNode(t, 0o600)
	n.fill()
	wantOnlyAlice(t, n)
}

// TestOthersCopiesAreNotBelieved checks that whatever other users do in their parts, bytes are
// right or read from storage, and that bob then has copies of his own.
func TestOthersCopiesAreNotBelieved(t *testing.T) {
	for name, harm := range map[string]func(n *node, path string) error{
		"other bytes": func(_ *node, path string) error {
			return overwrite(path, 5, []byte{0}, []byte{1})
		},
		"short": func(_ *node, path string) error { return os.Truncate(path, 9) },
		"a FIFO": func(_ *node, path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return unix.Mkfifo(path, 0o666)
		},
		"a link to bob's": func(n *node, path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink(n.tags(bob), path)
		},
		"a hard link to another group": func(n *node, path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Link(n.groups(alice)[0], path)
		},
		"a part of eve's that is alice's": func(n *node, _ string) error {
			if err := os.Rename(n.part(alice), n.part(eve)); err != nil {
				return err
			}
			return os.Symlink(n.part(eve), n.part(alice))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 0o644)
			n.fill()
			groups := n.groups(alice)
			if len(groups) != 6 {
				t.Fatalf("%d groups", len(groups))
			}
			n.must(harm(n, groups[0]))
			if out := n.as(bob, "find", n.dir); out.Err != "" || out.Found == userSamples {
				t.Errorf("%+v", out)
			}
			n.as(bob, "fill", n.dir)
			if out := n.as(bob, "find", n.dir); out.Err != "" || out.Found != userSamples {
				t.Errorf("after bob has read storage: %+v", out)
			}
		})
	}
}

func TestSquattedPart(t *testing.T) {
	n := newNode(t, 0o644)
	n.must(mkdirOf(n.part(bob), eve))
	n.must(os.Chmod(n.part(bob), 0o755))
	if out := n.as(bob, "find", n.dir); !strings.Contains(out.Err, "belongs to user 20003") {
		t.Errorf("%+v", out)
	}
}

func TestSharedFolderMustBeTheCentres(t *testing.T) {
	n := newNode(t, 0o644)
	n.must(os.Chown(n.dir, eve, eve))
	if out := n.as(bob, "find", n.dir); !strings.Contains(out.Err, "shared in a folder of root's") {
		t.Errorf("%+v", out)
	}
}

func TestTwoUsersAtOnce(t *testing.T) {
	n := newNode(t, 0o640)
	var both sync.WaitGroup
	for _, uid := range []int{alice, bob} {
		both.Go(func() { n.as(uid, "fill", n.dir) })
	}
	both.Wait()
	for _, uid := range []int{alice, bob} {
		if out := n.as(uid, "find", n.dir); out.Err != "" || out.Found != userSamples {
			t.Errorf("%d: %+v", uid, out)
		}
	}
}
