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
	changed, err := dataset.Build(m.Root(), m.Classes(), m.Len(), func(i int) dataset.Sample {
		s := m.Sample(draw.SampleID(i))
		edit(i, &s)
		return s
	})
	stagingtest.Must(t, err)
	return changed
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
