package session

import (
	"fmt"
	"os"
	"path/filepath"

	"rankpool/staging/dataset"
)

// Indexes are the indexes of a run's data sets, as its launcher found them when the run began,
// whatever happens to the files or to a manifest afterwards. The launcher writes them into the
// session folder for the ranks of its machine, which then do not scan the data themselves, and
// passes the identities of the data sets to all ranks.
type Indexes struct {
	Dir        string
	Identities []string // NAME=DIGEST
}

// IndexPath returns the file in the session folder that holds the sample index of a run's data set
// i.
func IndexPath(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("index-%d", i)) }

// Keep adds the next data set. Without a folder only its identity is kept.
func (x *Indexes) Keep(name string, m *dataset.Manifest) error {
	i := len(x.Identities)
	x.Identities = append(x.Identities, name+"="+m.Identity().Digest.String())
	if x.Dir == "" {
		return nil
	}
	return dataset.WriteIndex(IndexPath(x.Dir, i), m)
}

// RefusedName is the file in the session folder in which rank 0 writes why no rank can serve this
// run any longer.
const RefusedName = "refused"

// Refusal returns the reason that rank 0 wrote to RefusedName, or "".
func Refusal(sessionDir string) string {
	why, _ := os.ReadFile(filepath.Join(sessionDir, RefusedName))
	return string(why)
}
