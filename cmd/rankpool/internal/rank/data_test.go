package rank

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestResolveData(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{
		"both/train/a", "both/test/a", "plain/a", "k=v/a", "it's\nodd",
		"-", ".x",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "imagenet.parquet"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for _, c := range []struct {
		flags []string
		want  []string // NAME=path below root; nil: an error
	}{
		{nil, nil},
		{[]string{"plain"}, []string{"plain=plain"}},
		{[]string{"x=plain"}, []string{"x=plain"}},
		{[]string{"both"}, []string{"train=both/train", "test=both/test"}},
		{[]string{"x=both"}, []string{"x=both"}},
		{[]string{"both", "plain"}, []string{"train=both/train", "test=both/test", "plain=plain"}},
		{[]string{"imagenet.parquet"}, []string{"imagenet=imagenet.parquet"}},
		{[]string{"./k=v"}, []string{"k_v=k=v"}},
		{[]string{"it's\nodd"}, []string{"it_s_odd=it's\nodd"}},
		{[]string{"-", ".x"}, []string{"data=-", "x=.x"}},
		{[]string{"k=v"}, []string{"k_v=k=v"}}, // and not k in folder v, which is not there
		{[]string{"k=w"}, nil},
		{[]string{"plain", "plain"}, nil},
		{[]string{"x="}, nil},
		{[]string{"missing"}, nil},
	} {
		got, err := ResolveData(c.flags)
		var names []string
		for _, set := range got {
			rel, err := filepath.Rel(root, set.Path)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, set.Name+"="+rel)
		}
		if (err == nil) != (c.want != nil) || !slices.Equal(names, c.want) {
			t.Errorf("resolveData(%q) = %q, %v, want %q", c.flags, names, err, c.want)
		}
		for _, set := range got { // the ranks parse what run has resolved
			if again, err := resolveOne(set.String()); err != nil || again[0] != set {
				t.Errorf("resolveOne(%q) = %q, %v, want %q", set.String(), again, err, set)
			}
		}
	}
}
