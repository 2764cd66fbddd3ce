package layout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"
)

// Thresholds for hints.
const (
	// imbalanced is the ratio of the fullest target's load to the mean from which reading everything
	// takes visibly longer than necessary.
	imbalanced = 1.5
	// manySmall and manySmallFiles are the share and the number of small files from which requests,
	// not bytes, limit the rate.
	manySmall      = 0.5
	manySmallFiles = 1000
	// filesPerTarget is the number of files per target from which placing whole files is enough to
	// spread the load.
	filesPerTarget = 4
)

// Hints returns what would make the data set faster to read, one sentence each, the most urgent
// first. It is a pure function of the survey.
func (s *Survey) Hints() []string {
	var hints []string
	say := func(format string, args ...any) { hints = append(hints, fmt.Sprintf(format, args...)) }
	if s.Released > 0 {
		say("%s released to the archive, and a read waits for a tape: restore them first, with \"lfs "+
			"find DIR --layout released -print0 | xargs -0 lfs hsm_restore\".",
			are(s.Released))
	}
	if s.Stubs > 0 {
		say("%s only on a remote storage target, and cannot be opened: restore them first, "+
			"with \"beegfs remote pull\".", are(s.Stubs))
	}
	if s.Unread > 0 {
		say("The layout of %s cannot be read; the first error: %v.", files(s.Unread), s.Problem)
	}
	if hint := s.spreadHint(); hint != "" {
		hints = append(hints, hint)
	}
	if ratio := s.MaxOverMean(); ratio >= imbalanced && s.Files >= int64(filesPerTarget*len(s.Loads)) {
		most := slices.MaxFunc(s.Loads, func(a, b Load) int { return cmp.Compare(a.Bytes, b.Bytes) })
		say("%s holds %.1f times the mean of the targets in use, and reading everything waits "+
			"for it: %s.",
			TargetName(s.FileSystem, most.Target), ratio, s.rebalance())
	}
	if s.SmallOnOST >= manySmallFiles && float64(s.SmallOnOST) >= manySmall*float64(s.Files) {
		say("%s than %s: %spack them into shards with \"rankpool pack\".",
			smaller(s.SmallOnOST), humanize.IBytes(SmallFileBytes), s.onMDTInstead())
	}
	if s.SmallWide >= manySmallFiles && float64(s.SmallWide) >= manySmall*float64(s.Files) {
		say("%s than a stripe and yet have several targets, all of which are asked for the file size: "+
			"use stripe count 1 for new ones.", smaller(s.SmallWide))
	}
	return hints
}

// spreadHint returns a hint if the data set lies on few of the file system's targets.
func (s *Survey) spreadHint() string {
	used := len(s.Loads)
	if used == 0 || s.Known < 2*used {
		return ""
	}
	if s.Files >= int64(filesPerTarget*s.Known) {
		pool := ""
		if len(s.Pools) > 0 {
			pool = " (pool " + s.Pools[0] + ")"
		}
		return fmt.Sprintf("%s, but on only %d of %d targets%s: \"lfs getstripe -d DIR\" shows whether "+
			"the folder's default names a first target or a pool.",
			files(s.Files), used, s.Known, pool)
	}
	widest := 0
	for _, group := range s.Groups {
		widest = max(widest, group.Stripes)
	}
	wider := (int64(s.Known) + s.Files - 1) / s.Files // enough to let few files use all targets
	return fmt.Sprintf("Stripe count %d over %d of %d targets: \"lfs migrate -c %d FILE\" spreads a "+
		"large file, \"lfs setstripe -c %d DIR\" new ones.",
		widest, used, s.Known, max(2, wider), max(2, wider))
}

func (s *Survey) rebalance() string {
	if s.FileSystem == Lustre {
		return "\"lfs migrate\" moves files to other targets, and \"lfs setstripe -i -1 DIR\" lets new " +
			"files start anywhere"
	}
	return "copying its files again spreads them"
}

func (s *Survey) onMDTInstead() string {
	if s.FileSystem == Lustre {
		return "on the MDT each would cost one request instead of two (" +
			"\"lfs setstripe -E 256K -L mdt -E -1 -c 1 DIR\" for new ones), or "
	}
	return ""
}

func files(n int64) string {
	if n == 1 {
		return "1 file"
	}
	return humanize.Comma(n) + " files"
}

func are(n int64) string {
	if n == 1 {
		return "1 file is"
	}
	return files(n) + " are"
}

func smaller(n int64) string { return are(n) + " smaller" }
