package rank

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
)

// TestRankOpensTheRunsIndex checks which index a rank serves from, whatever has happened to the
// files since the run began.
func TestRankOpensTheRunsIndex(t *testing.T) {
	set := folderSet(t, "a/1.png", "a/2.png", "b/1.png")
	folder := t.TempDir()
	kept := session.Indexes{Dir: folder}
	if err := kept.Keep("train", set.manifest); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(set.Path, "a/2.png")); err != nil {
		t.Fatal(err)
	}
	looked := false
	look := func() (*dataset.Manifest, error) {
		looked = true
		return index.Scan(t.Context(), set.Path, index.ScanOptions{})
	}
	rank := func() *process {
		dir := filepath.Join(folder, "r0")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		opt := &Options{Session: folder, Identities: kept.Identities}
		return &process{
			opt: opt, folder: ownFolder{dir: dir}, transport: ranks.NewMux(transport.NewLocal(1)[0]),
			logger: slog.New(slog.DiscardHandler),
		}
	}
	check := func(what string, r *process, wantLook bool, refused string) {
		t.Helper()
		looked = false
		m, path, err := r.openIndex(0, look)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if looked != wantLook || m.Len() != map[bool]int{false: 3, true: 2}[wantLook] {
			t.Errorf("%s: looked at the files: %v; %d samples by %s", what, looked, m.Len(), path)
		}
		r.sets = []openedSet{{dataSet: set.dataSet, manifest: m}}
		if err := r.checkRun(); (err != nil) != (refused != "") ||
			err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%s: %v, want %q", what, err, refused)
		}
	}
	const other = "is not the one that this run began with: its identity is"
	check("as run left it", rank(), false, "")
	if err := os.WriteFile(session.IndexPath(folder, 0), []byte("no index"), 0o644); err != nil {
		t.Fatal(err)
	}
	check("damaged", rank(), true, other)

	// A node without the launcher: the rank's own folder has the index.
	folder = t.TempDir()
	r := rank()
	if err := dataset.WriteIndex(filepath.Join(r.folder.dir, "index-0"), set.manifest); err != nil {
		t.Fatal(err)
	}
	check("in the rank's folder", r, false, "")

	r.refuse(errors.New("no way"))
	if why := session.Refusal(folder); why != "no way" {
		t.Errorf("the launcher hears %q", why)
	}
}
