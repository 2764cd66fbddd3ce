package index

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"rankpool/staging/dataset"
	"rankpool/staging/shards"
)

// aboutData matches the names of files that lie beside samples and describe them: lists, indexes,
// metadata, texts for people, and what file managers leave.
var aboutData = regexp.MustCompile(`\.(csv|html|idx|index|ini|jsonl?|log|md|md5|parquet|pbtxt|pdf|` +
	`py|rst|sh|sha256|tsv|txt|xml|ya?ml)$|^(license|readme|thumbs\.db|_success)$`)

// isImage matches the extensions of torchvision's ImageFolder.
var isImage = regexp.MustCompile(`\.(bmp|jpe?g|pgm|png|ppm|tiff?|webp)$`)

// isCompressed follows a shard's name.
const isCompressed = "is a compressed shard, whose samples cannot be read in place: unpack it; " +
	"or use --format files, if it is one sample"

// A division says what the files of a tree are.
type division struct {
	shards map[*scannedFile]*shardFile
	other  map[*scannedFile]bool // files that are not samples
	flat   bool                  // the root's files are samples, and its folders no classes
	// class folders have other files; none has the extension of a sample
	otherKinds bool
}

// images is the kind of all images.
const images = "image"

// mostFrequent returns the kind of which folders have the most files: images, or an extension. If
// several have as many, it is images, then what does not describe data.
func mostFrequent(folders []*scannedFolder) string {
	count := map[string]int{}
	for _, in := range folders {
		for i := range in.Files {
			name := shards.LowerASCII(in.Files[i].Name)
			switch extension := path.Ext(name); {
			case isImage.MatchString(extension):
				count[images]++
			case aboutData.MatchString(name):
				count[".txt"]++
			default:
				count[extension]++
			}
		}
	}
	best := ""
	if count[images] > 0 {
		best = images
	}
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		if n := cmp.Compare(count[kind], count[best]); n > 0 ||
			n == 0 && best != images && aboutData.MatchString(best) {
			best = kind
		}
	}
	return best
}

// divide finds the samples in shards, and the files that are not samples: those that describe
// the others, those beside images, and files beside class folders that hold more of them.
func (s *scanner) divide() (*division, error) {
	root, classes := s.folders[:1], s.folders[1:]
	kind := mostFrequent(classes)
	found, err := s.shards(kind)
	if err != nil {
		return nil, err
	}
	d := &division{shards: found, other: map[*scannedFile]bool{}}
	switch {
	case len(d.shards) > 0:
		d.leave(s.folders, aboutData.MatchString)
	case kind == images:
		d.leave(classes, func(name string) bool { return !isImage.MatchString(name) })
	case !aboutData.MatchString(kind):
		d.leave(classes, aboutData.MatchString)
	}
	d.otherKinds = len(d.other) > 0
	for _, file := range s.leftOut {
		d.other[file] = true
	}
	samples := d.count(classes)
	switch beside := d.count(root); {
	case len(classes) == 0:
	case samples == 0:
		d.flat = d.hasUnlabelled(root[0])
	case beside <= samples:
		d.leave(root, func(name string) bool {
			return kind == images || formatByName(name) == dataset.FormatFile
		})
	}
	if kind := mostFrequent(s.folders); slices.Contains(arrayFiles, kind) && !s.opt.WholeFiles {
		s.notice(fmt.Sprintf("%s holds %s files, each of which is one sample: for samples of their "+
			"rows, run \"rankpool index %[1]s --rows ROWS -o MANIFEST\"", s.root, kind))
	}
	return d, s.checkPlaces(d)
}

// checkPlaces returns an error about the first file that is neither a sample of a class nor another
// file.
func (s *scanner) checkPlaces(d *division) error {
	for i, in := range s.folders {
		beside := i == 0 && len(s.folders) > 1 && !d.flat
		for j := range in.Files {
			file := &in.Files[j]
			sh := d.shards[file]
			switch {
			case d.other[file], sh != nil && (len(sh.contents.Samples) == 0 || sh.contents.Labels != nil):
			case beside:
				return fmt.Errorf("staging: %s is beside class folders and belongs to no class: move it, "+
					"or name the folder that holds the samples", s.abs(file.Name))
			case sh == nil && !s.opt.WholeFiles && isCompressedShard(file.Name):
				return fmt.Errorf("staging: %s %s", s.abs(path.Join(in.path, file.Name)), isCompressed)
			}
		}
	}
	return nil
}

// isCompressedShard reports whether a name is that of a compressed tar shard or TFRecord file.
func isCompressedShard(name string) bool {
	lower := shards.LowerASCII(name)
	switch extension := path.Ext(lower); extension {
	case ".tgz":
		return true
	case ".gz", ".bz2", ".xz", ".zst", ".lz4":
		name := strings.TrimSuffix(lower, extension)
		return formatByName(name) == dataset.FormatTar || tfRecordName.MatchString(name) ||
			partName.MatchString(name)
	}
	return false
}

// hasUnlabelled reports whether the folder has shards whose samples have no class numbers.
func (d *division) hasUnlabelled(in *scannedFolder) bool {
	for i := range in.Files {
		sh := d.shards[&in.Files[i]]
		if sh != nil && len(sh.contents.Samples) > 0 && sh.contents.Labels == nil {
			return true
		}
	}
	return false
}

// leave makes the files in folders that have such a name, in lower case, and are no shards, other
// files.
func (d *division) leave(folders []*scannedFolder, is func(name string) bool) {
	for _, in := range folders {
		for i := range in.Files {
			file := &in.Files[i]
			if d.shards[file] == nil && is(shards.LowerASCII(file.Name)) {
				d.other[file] = true
			}
		}
	}
}

// count returns the number of files in folders that hold samples.
func (d *division) count(folders []*scannedFolder) (files int) {
	for _, in := range folders {
		for i := range in.Files {
			sh := d.shards[&in.Files[i]]
			if !d.other[&in.Files[i]] && (sh == nil || len(sh.contents.Samples) > 0) {
				files++
			}
		}
	}
	return files
}

// tellLeftOut says which files and links are not samples.
func (s *scanner) tellLeftOut(d *division) {
	if len(d.other) > 0 {
		s.notice(fmt.Sprintf("%s holds %s, which %s: %s", s.root,
			english.Plural(len(d.other), "other file", ""),
			english.PluralWord(len(d.other), "is not a sample", "are not samples"),
			extensions(maps.Keys(d.other))))
	}
	var dangling []string
	for _, in := range s.folders {
		for _, name := range in.Dangling {
			dangling = append(dangling, path.Join(in.path, name))
		}
	}
	if s.dangling = len(dangling); s.dangling == 0 {
		return
	}
	s.notice(fmt.Sprintf("%s holds %s that %s nowhere and %s left out: %s", s.root,
		english.Plural(s.dangling, "link", ""), english.PluralWord(s.dangling, "leads", "lead"),
		english.PluralWord(s.dangling, "is", "are"), firstOf(dangling, 3)))
}

// extensions lists how often the extensions of files occur, the most frequent first: "3 .txt,
// 1 .csv, 2 without extension".
func extensions(files iter.Seq[*scannedFile]) string {
	count := map[string]int{}
	for file := range files {
		count[cmp.Or(path.Ext(shards.LowerASCII(file.Name)), "without extension")]++
	}
	kinds := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", count[kind], kind)
	}
	return firstOf(kinds, 8)
}

// firstOf lists the first n texts.
func firstOf(texts []string, n int) string {
	if len(texts) <= n {
		return strings.Join(texts, ", ")
	}
	return strings.Join(texts[:n], ", ") + fmt.Sprintf(" and %d more", len(texts)-n)
}

// notice tells the caller one sentence.
func (s *scanner) notice(sentence string) {
	if s.opt.Notice != nil {
		s.opt.Notice(sentence)
	}
}
