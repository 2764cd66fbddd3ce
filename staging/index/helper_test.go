package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// tooLong is the target of a link that cannot be examined.
var tooLong = strings.Repeat("x", 256)

func scan(t testing.TB, root string) *dataset.Manifest {
	t.Helper()
	m, err := Scan(context.Background(), root, ScanOptions{})
	stagingtest.Must(t, err)
	return m
}

// samples lists "label relative-path" of every sample.
func samples(m *dataset.Manifest) []string {
	var list []string
	for id := range draw.SampleID(m.Len()) {
		list = append(list, fmt.Sprintf("%d %s", m.Label(id), m.RelPath(id)))
	}
	return list
}

// rebuilt returns a manifest of the samples of m, each changed by edit.
func rebuilt(
	t testing.TB,
	m *dataset.Manifest,
	edit func(id int, s *dataset.Sample),
) *dataset.Manifest {
	t.Helper()
	var samples []dataset.Sample
	for i := range m.Len() {
		samples = append(samples, m.Sample(draw.SampleID(i)))
		edit(i, &samples[i])
	}
	return built(t, m.Root(), m.Classes(), samples...)
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

// differ returns the first way in which two manifests differ, "" if none.
func differ(a, b *dataset.Manifest) string {
	x, errX := dataset.EncodeManifest(a)
	y, errY := dataset.EncodeManifest(b)
	if errX == nil && errY == nil && bytes.Equal(x, y) {
		return ""
	}
	return fmt.Sprintf("the manifests differ: %v, %v; %v; folders %v, %v; %v", a.Identity(),
		b.Identity(), dataset.Compare(a, b, 5), a.Folders(), b.Folders(), errors.Join(errX, errY))
}
