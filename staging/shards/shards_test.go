package shards

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError fails the test unless err is one line that holds every one of parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q lacks %q, or is not one line", err, part)
		}
	}
}

type find func(io.ReaderAt, int64) (*Contents, error)

func parse(f find, data []byte) (*Contents, error) {
	return f(bytes.NewReader(data), int64(len(data)))
}

// A place is a member as make_shards.py lists it.
type place struct {
	Kind         string
	Offset, Size int64
}

func (p *place) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&p.Kind, &p.Offset, &p.Size})
}

// places lists the members of each sample.
func (c *Contents) places() [][]place {
	list := make([][]place, len(c.Samples))
	first := uint32(0)
	for i := range c.Samples {
		for _, m := range c.Members[first:c.Ends[i]] {
			list[i] = append(list[i], place{c.Kinds[m.Kind], m.Offset, m.Size})
		}
		first = c.Ends[i]
	}
	return list
}

// TestAsPython finds the same samples as Python does in shards that Python wrote.
func TestAsPython(t *testing.T) {
	folder := t.TempDir()
	script := exec.Command("/usr/bin/python3", "testdata/make_shards.py", folder)
	var stderr bytes.Buffer
	script.Stderr = &stderr
	output, err := script.Output()
	if err != nil {
		t.Fatalf("this test needs /usr/bin/python3: %v\n%s", err, stderr.Bytes())
	}
	var want map[string][][]place
	must(t, json.Unmarshal(output, &want))
	samples := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		data, err := os.ReadFile(filepath.Join(folder, name))
		must(t, err)
		c, err := parse(Tar, data)
		if err != nil {
			t.Errorf("%s %v", name, err)
			continue
		}
		if got := c.places(); len(got) != len(want[name]) ||
			!slices.EqualFunc(got, want[name], slices.Equal) {
			t.Errorf("%s has\n%v, want\n%v", name, got, want[name])
		}
		samples += len(c.Samples)
		checkContents(t, c, int64(len(data)))
	}
	if samples < 200 {
		t.Errorf("only %d samples were compared", samples)
	}
}

// checkContents fails the test when c cannot be the contents of a file of sizeBytes bytes.
func checkContents(t *testing.T, c *Contents, sizeBytes int64) {
	t.Helper()
	first := uint32(0)
	for i, s := range c.Samples {
		if s.Offset < 0 || s.Size < 0 || c.Ends == nil && s.Offset+s.Size > sizeBytes {
			t.Fatalf("sample %d is at %+v of %d bytes", i, s, sizeBytes)
		}
		if c.Ends == nil {
			continue
		}
		sum := int64(0)
		for _, m := range c.Members[first:c.Ends[i]] {
			sum += m.Size
			if m.Offset < 0 || m.Size < 0 || m.Offset > sizeBytes-m.Size || int(m.Kind) >= len(c.Kinds) {
				t.Fatalf("sample %d has the member %+v of %d bytes", i, m, sizeBytes)
			}
		}
		if sum != s.Size || c.Ends[i] == first || c.Members[first].Offset != s.Offset {
			t.Fatalf("sample %d is %+v, its members have %d bytes", i, s, sum)
		}
		first = c.Ends[i]
	}
	if c.Labels != nil && len(c.Labels) != len(c.Samples) {
		t.Fatalf("%d labels of %d samples", len(c.Labels), len(c.Samples))
	}
}
