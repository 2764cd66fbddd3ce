package keep

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"rankpool/scheduler/draw"
)

// A world is a folder of the node, a user's tags, and a data set.
type world struct {
	t         *testing.T
	dir, tags string
	set       Set
	folder    *Folder
	log       bytes.Buffer
}

func newWorld(t *testing.T, samples int, quota int64) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), tags: filepath.Join(t.TempDir(), "tags")}
	w.set = Set{
		Identity: "a data set", Samples: samples, Ranks: 1, TagsDir: w.tags,
		Size: size,
		Log:  slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	folder, err := OpenFolder(w.dir, quota, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	w.folder = folder
	return w
}

// sample returns a sample's bytes.
func sample(id draw.SampleID) []byte {
	b := make([]byte, size(id))
	_, _ = rand.NewChaCha8([32]byte{byte(id), byte(id >> 8)}).Read(b) // it never fails
	return b
}

// size returns a sample's size, some 20 KB.
func size(id draw.SampleID) int64 { return 20_000 + int64(id)*2654435761%1000 }

func (w *world) open() *Store {
	w.t.Helper()
	s, err := w.folder.Open(w.set)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { s.Close(time.Minute) })
	return s
}

// fill writes all samples, as a job does, and ends the job.
func (w *world) fill() Counts {
	w.t.Helper()
	s := w.open()
	for id := range draw.SampleID(w.set.Samples) {
		s.Write(id, sample(id))
	}
	return s.Close(time.Minute)
}

// read returns what a job reads of a sample; nil if there is no copy.
func (w *world) read(s *Store, id draw.SampleID) []byte {
	w.t.Helper()
	into, done := make([]byte, w.set.Size(id)), make(chan error, 1)
	if !s.Read(id, into, func(err error) { done <- err }) {
		return nil
	}
	if err := <-done; err != nil {
		if !bytes.Equal(into, make([]byte, len(into))) {
			w.t.Errorf("sample %d: %v, and memory has changed", id, err)
		}
		return nil
	}
	if !bytes.Equal(into, sample(id)) {
		w.t.Fatalf("sample %d: other bytes", id)
	}
	return into
}

// found returns how many samples a job finds.
func (w *world) found(s *Store) (n int) {
	w.t.Helper()
	for id := range draw.SampleID(w.set.Samples) {
		if w.read(s, id) != nil {
			n++
		}
	}
	return n
}

// files returns the paths of the user's copies.
func (w *world) files() []string {
	w.t.Helper()
	part := filepath.Join(w.dir, strconv.Itoa(os.Geteuid()))
	files, err := filepath.Glob(filepath.Join(part, "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}
