package stage

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// A list file names items, one per line, by paths relative to the source; lines that begin with #
// are comments, and empty lines are ignored.

// ReadList reads a list file. Absolute paths must be in root, and become relative.
//
// Errors name the line: a path that leads out of root.
func ReadList(from io.Reader, root string) ([]Selected, error) {
	in := bufio.NewReader(from)
	var part []Selected
	for line := 1; ; line++ {
		text, err := in.ReadString('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("stage: list: %w", err)
		}
		name := strings.TrimSuffix(text, "\n")
		if name != "" && name[0] != '#' {
			rel, bad := listed(name, root)
			if bad != nil {
				return nil, fmt.Errorf("stage: list, line %d: %w", line, bad)
			}
			part = append(part, Selected{Path: rel})
		}
		if err == io.EOF {
			return part, nil
		}
	}
}

// listed returns the path on a line.
func listed(name, root string) (string, error) {
	rel := name
	if path.IsAbs(name) {
		inside, found := strings.CutPrefix(path.Clean(name)+"/", strings.TrimSuffix(root, "/")+"/")
		if !found {
			return "", fmt.Errorf("%q is not in %s", name, root)
		}
		rel = inside
	}
	if rel = path.Clean(rel); !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%q leads out of %s", name, root)
	}
	if rel == "." {
		rel = ""
	}
	return rel, nil
}
