package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rankpool/mpicache/transport"
	"rankpool/scheduler"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/storage"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError fails the test unless err is one line that holds every one of parts.
func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is not one line", err)
	}
}

// grow writes files below a folder.
func grow(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// numbered writes n files of a few hundred bytes in three classes.
func numbered(t testing.TB, n int) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("class%d/%04d.bin", i%3, i)] = strings.Repeat(fmt.Sprint(i, "."), 37+i)
	}
	grow(t, root, files)
	return root
}

// tarOf returns a tar file with members in pairs of name and text.
func tarOf(t testing.TB, pairs ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(pairs); i += 2 {
		must(t, w.WriteHeader(&tar.Header{Name: pairs[i], Size: int64(len(pairs[i+1])), Mode: 0o600}))
		_, err := w.Write([]byte(pairs[i+1]))
		must(t, err)
	}
	must(t, w.Close())
	return out.String()
}

func scan(t testing.TB, root string) *dataset.Manifest {
	t.Helper()
	m, err := index.Scan(context.Background(), root, index.ScanOptions{})
	must(t, err)
	return m
}

// pack packs and fails the test on an error.
func pack(t testing.TB, m *dataset.Manifest, opt Options) *Report {
	t.Helper()
	r, err := Run(context.Background(), m, opt)
	must(t, err)
	return r
}

// open opens a pack as training does.
func open(t testing.TB, dest string) *dataset.Manifest {
	t.Helper()
	m, err := index.Open(context.Background(), dest, index.OpenOptions{NoCache: true})
	must(t, err)
	return m
}

// read reads a sample by a fetcher, which looks at its checksum.
func read(t testing.TB, m *dataset.Manifest, f *storage.Fetcher, id scheduler.SampleID) string {
	t.Helper()
	into, done := make([]byte, m.Size(id)), make(chan error, 1)
	f.Fetch(id, into, 0, func(err error) { done <- err })
	must(t, <-done)
	return string(into)
}

// plain reads a sample's members from its file, by nothing of the product.
func plain(t testing.TB, m *dataset.Manifest, id scheduler.SampleID) string {
	t.Helper()
	file, err := os.ReadFile(m.Path(id))
	must(t, err)
	text := ""
	for _, member := range m.Members(id) {
		text += string(file[member.Offset : member.Offset+member.Size])
	}
	return text
}

// files returns what a folder holds: the bytes of each file by name.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	found := map[string]string{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		must(t, err)
		found[entry.Name()] = string(text)
	}
	return found
}

// shardsOf is files without what is not a shard.
func shardsOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := files(t, dir)
	for name := range found {
		if !strings.HasPrefix(name, "pack-") {
			delete(found, name)
		}
	}
	return found
}

// groupOf returns rank 0 of a group whose other ranks serve until end, and end.
func groupOf(t testing.TB, ranks int) (group *index.Group, end func()) {
	t.Helper()
	peers := transport.NewLocal(ranks)
	group = index.NewGroup(peers[0])
	var serving sync.WaitGroup
	for _, peer := range peers[1:] {
		serving.Go(func() { Serve(context.Background(), index.NewGroup(peer), 4) })
	}
	return group, func() {
		group.Dismiss()
		serving.Wait()
		for _, peer := range peers {
			must(t, peer.Close())
		}
	}
}
