package copier

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// A list file names items, one a line, by paths relative to the source. A path that begins with a
// quotation mark or #, or has a line feed in it, is written in quotation marks, as a Go string;
// lines that begin with # are remarks, and empty lines nothing.

// ReadList reads a list file. With nul it has paths that end with a NUL byte instead of a line
// feed, nothing quoted and no remarks, as "find -print0" writes them. Absolute paths must lie in
// root, and become relative.
//
// Errors name the line: a path that leads out of root, a damaged quotation.
func ReadList(from io.Reader, root string, nul bool) ([]Selected, error) {
	in, end := bufio.NewReader(from), byte('\n')
	if nul {
		end = 0
	}
	var part []Selected
	for line := 1; ; line++ {
		text, err := in.ReadString(end)
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("copier: list: %w", err)
		}
		name := strings.TrimSuffix(text, string(end))
		if name != "" && (nul || name[0] != '#') {
			rel, bad := listed(name, root, nul)
			if bad != nil {
				return nil, fmt.Errorf("copier: list, line %d: %w", line, bad)
			}
			part = append(part, Selected{Path: rel})
		}
		if err == io.EOF {
			return part, nil
		}
	}
}

// listed returns the path that a line stands for.
func listed(name, root string, nul bool) (string, error) {
	if !nul && name[0] == '"' {
		unquoted, err := strconv.Unquote(name)
		if err != nil {
			return "", fmt.Errorf("%s is no quoted path", name)
		}
		name = unquoted
	}
	if path.IsAbs(name) {
		inside, found := strings.CutPrefix(path.Clean(name)+"/", strings.TrimSuffix(root, "/")+"/")
		if !found {
			return "", fmt.Errorf("%q does not lie in %s", name, root)
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

// FormatFailures writes failures as a list file, each with a remark that says why.
func FormatFailures(failures []Failure) []byte {
	var out bytes.Buffer
	for _, f := range failures {
		fmt.Fprintf(&out, "# rank %d: %s\n", f.Rank, strings.ReplaceAll(f.Reason, "\n", " "))
		name := f.Path
		if name == "" {
			name = "."
		}
		if strings.ContainsAny(name, "\n") || name[0] == '"' || name[0] == '#' {
			name = strconv.QuoteToASCII(name)
		}
		out.WriteString(name + "\n")
	}
	return out.Bytes()
}
