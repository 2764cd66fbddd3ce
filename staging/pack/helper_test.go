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
	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/stagingtest"
	"rankpool/staging/storage"
)

// grow writes files below a folder.
func grow(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		stagingtest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		stagingtest.Must(t, os.WriteFile(path, []byte(text), 0o644))
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
		head := tar.Header{Name: pairs[i], Size: int64(len(pairs[i+1])), Mode: 0o600}
		stagingtest.Must(t, w.WriteHeader(&head))
		_, err := w.Write([]byte(pairs[i+1]))
		stagingtest.Must(t, err)
	}
	stagingtest.Must(t, w.Close())
	return out.String()
}

func scan(t testing.TB, root string) *dataset.Manifest {
	t.Helper()
	m, err := index.Scan(context.Background(), root, index.ScanOptions{})
	stagingtest.Must(t, err)
	return m
}

// built returns the manifest of samples below root.
func built(
	t testing.TB, root string, classes []string, samples ...dataset.Sample,
) *dataset.Manifest {
	t.Helper()
	b := dataset.NewBuilder(root, len(samples))
	for _, s := range samples {
		stagingtest.Must(t, b.Add(s))
	}
	m, err := b.Manifest(classes)
	stagingtest.Must(t, err)
	return m
}

// pack packs and fails the test on an error.
func pack(t testing.TB, m *dataset.Manifest, opt Options) *Report {
	t.Helper()
	r, err := Run(context.Background(), m, opt)
	stagingtest.Must(t, err)
	return r
}

// open opens a pack as training does.
func open(t testing.TB, dest string) *dataset.Manifest {
	t.Helper()
	m, err := index.Open(context.Background(), dest, index.OpenOptions{NoCache: true})
	stagingtest.Must(t, err)
	return m
}

// read reads a sample with a fetcher, which verifies its checksum.
func read(t testing.TB, m *dataset.Manifest, f *storage.Fetcher, id draw.SampleID) string {
	t.Helper()
	into, done := make([]byte, m.Size(id)), make(chan error, 1)
	f.Fetch(id, into, 0, func(err error) { done <- err })
	stagingtest.Must(t, <-done)
	return string(into)
}

// plain reads a sample's members from its file, without the product's readers.
func plain(t testing.TB, m *dataset.Manifest, id draw.SampleID) string {
	t.Helper()
	file, err := os.ReadFile(m.Path(id))
	stagingtest.Must(t, err)
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
	stagingtest.Must(t, err)
	found := map[string]string{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		stagingtest.Must(t, err)
		found[entry.Name()] = string(text)
	}
	return found
}

// shardsOf is like files, but returns only shards.
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

// groupOf returns rank 0 of a group whose other ranks serve until end is called.
func groupOf(t testing.TB, ranks int) (group *index.Group, end func()) {
	t.Helper()
	peers := transport.NewLocal(ranks)
	group = index.NewGroup(peers[0])
	var serving sync.WaitGroup
	for _, peer := range peers[1:] {
		serving.Go(func() { Serve(context.Background(), index.NewGroup(peer)) })
	}
	return group, func() {
		group.Dismiss()
		serving.Wait()
		for _, peer := range peers {
			stagingtest.Must(t, peer.Close())
		}
	}
}
