package stage

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// A list file names items, one per line, by paths relative to the source. A path that begins with a
// quotation mark or #, or contains a line feed, is quoted as a Go string; lines that begin with #
// are comments, and empty lines are ignored.

// ReadList reads a list file. Absolute paths must be in root, and become relative.
//
// Errors name the line: a path that leads out of root, an invalid quotation.
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
	if name[0] == '"' {
		unquoted, err := strconv.Unquote(name)
		if err != nil {
			return "", fmt.Errorf("%s is not a quoted path", name)
		}
		name = unquoted
	}
	if path.IsAbs(name) {
		inside, found := strings.CutPrefix(path.Clean(name)+"/", strings.TrimSuffix(root, "/")+"/")
		if !found {
			return "", fmt.Errorf("%q is not in %s", name, root)
		}
		name = strings.TrimSuffix(inside, "/")
	}
	name = path.Clean(name)
	if name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "\x00") {
		return "", fmt.Errorf("%q leads out of %s", name, root)
	}
	if name == "." {
		name = ""
	}
	return name, nil
}

// FormatFailures writes failures as a list file, each with a comment that gives the reason.
func FormatFailures(failures []Failure) []byte {
	var out bytes.Buffer
	for _, f := range failures {
		fmt.Fprintf(&out, "# rank %d: %s\n", f.Rank, strings.ReplaceAll(f.Reason, "\n", " "))
		name := cmp.Or(f.Path, ".")
		if strings.ContainsAny(name, "\n") || name[0] == '"' || name[0] == '#' {
			name = strconv.QuoteToASCII(name)
		}
		out.WriteString(name + "\n")
	}
	return out.Bytes()
}
