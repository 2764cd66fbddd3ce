package stage

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// ReadList returns what a list names: a file or folder on each line, relative to root or by an
// absolute path in it. Lines that begin with # are comments, and empty lines are ignored. Errors
// name the line: a path that leads out of root.
func ReadList(list, root string) (part []Selected, err error) {
	line := 0
	for name := range strings.SplitSeq(list, "\n") {
		line++
		if name == "" || name[0] == '#' {
			continue
		}
		rel := path.Clean(name)
		if path.IsAbs(rel) {
			rel, _ = filepath.Rel(root, rel) // both are absolute
		}
		if !filepath.IsLocal(rel) {
			return nil, fmt.Errorf("stage: list, line %d: %q leads out of %s", line, name, root)
		}
		if rel == "." {
			rel = ""
		}
		part = append(part, Selected{Path: rel})
	}
	return part, nil
}
