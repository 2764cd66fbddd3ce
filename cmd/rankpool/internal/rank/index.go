package rank

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rankpool/cmd/rankpool/internal/session"
	"rankpool/staging/dataset"
)

// refuse records for the launcher that starting the ranks again would not help.
func (r *process) refuse(why error) {
	if r.transport.Rank() == 0 {
		// without it the launcher restarts them
		_ = os.WriteFile(filepath.Join(r.opt.Session, session.RefusedName), []byte(why.Error()),
			0o600)
	}
}

// checkRun returns an error unless the data sets are those with which the launcher began the run.
func (r *process) checkRun() error {
	for _, set := range r.sets {
		digest := set.manifest.Identity().Digest.String()
		for _, said := range r.opt.Identities {
			if name, want, _ := strings.Cut(said, "="); name == set.Name && want != digest {
				return fmt.Errorf("data set %s in %s is not the one that this run began with: "+
					"its identity is %s, and was %s; start a new training",
					name, set.Path, digest, want)
			}
		}
	}
	return nil
}

// openIndex returns a data set's index and its file: the run's own, or the one that an earlier rank
// of this launch left in the rank's folder; otherwise it indexes the data set, and writes the index
// there.
func (r *process) openIndex(
	i int, open func() (*dataset.Manifest, error),
) (m *dataset.Manifest, path string, err error) {
	own := filepath.Join(r.folder.dir, fmt.Sprintf("index-%d", i))
	for _, path := range []string{session.IndexPath(r.opt.Session, i), own} {
		if m, err = dataset.OpenIndex(path); err == nil {
			return m, path, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			r.logger.Warn("an index of this run is not used", "error", err)
		}
	}
	if m, err = open(); err != nil {
		return nil, "", err
	}
	if err := dataset.WriteIndex(own, m); err != nil {
		return nil, "", err
	}
	m, err = dataset.OpenIndex(own) // one copy in memory serves this rank and its clients
	return m, own, err
}
