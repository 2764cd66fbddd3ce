package index

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rankpool/staging/dataset"
)

// OpenOptions controls Open. The zero value is ready to use.
type OpenOptions struct {
	ScanOptions
	NoCache bool // neither use nor write a cached manifest
	// called with one sentence on harmless failures, and on why a cached manifest was not used
	Log func(msg string)
}

// ManifestName is the name of a manifest in the folder that it describes, as pack writes it; it is
// never a sample.
const ManifestName = "rankpool.parquet"

// Open returns the manifest of a data set: a folder, or a manifest file that WriteParquet wrote.
//
// A folder is scanned, unless the manifest of an earlier scan is cached, every folder still has its
// modification time, and 64 samples spread over the data set still have their size and modification
// time. A change of a file's content in place, in a folder that did not change, may pass that
// check; then reading the sample fails with a SampleError. The name of the cache file depends on
// the folder's absolute path. A failure to read or write it is only logged.
//
// For a manifest file, Open checks the same spread of 64 samples. If a folder contains a manifest
// named ManifestName, Open uses that, wherever the folder is now.
//
// Errors: those of Scan, of ReadParquet, a manifest file that does not describe its root, and more
// bytes than a data set can have.
func Open(ctx context.Context, dataPath string, opt OpenOptions) (*dataset.Manifest, error) {
	m, err := openAny(ctx, dataPath, opt)
	if err == nil {
		err = m.CheckBytes()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

func openAny(ctx context.Context, dataPath string, opt OpenOptions) (*dataset.Manifest, error) {
	if opt.Log == nil {
		opt.Log = func(string) {}
	}
	abs, err := filepath.Abs(dataPath)
	if err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	if info.IsDir() {
		own := filepath.Join(abs, ManifestName)
		if info, err := os.Stat(own); err == nil && info.Mode().IsRegular() {
			return openManifest(ctx, own, abs, opt)
		}
	}
	if MadeOfPieces(abs, opt.WholeFiles) {
		files := ""
		if info.IsDir() {
			files = "; if each file is one sample, use --format files"
		}
		return nil, fmt.Errorf("staging: a sample of %s is not a file: list its pieces with \"rankpool "+
			"index %[1]s --rows ROWS -o MANIFEST\", and give that manifest instead%s", dataPath, files)
	}
	if !info.IsDir() {
		return openManifest(ctx, abs, "", opt)
	}
	if opt.NoCache {
		return Scan(ctx, abs, opt.ScanOptions)
	}
	return openFolder(ctx, abs, opt)
}

// openManifest reads the manifest file at path. root is where the data are; "" is where it says.
func openManifest(ctx context.Context, path, root string, opt OpenOptions) (
	*dataset.Manifest, error,
) {
	if opt.WholeFiles || len(opt.Only) > 0 {
		return nil, fmt.Errorf("staging: %s says what the samples are: give --only and --format to "+
			"\"rankpool index\", which writes such a manifest of a folder", path)
	}
	m, err := dataset.ReadParquet(path)
	if err != nil {
		return nil, err
	}
	if root != "" {
		m = m.WithRoot(root)
	}
	if err := checkSpread(ctx, m); err != nil {
		return nil, fmt.Errorf("staging: manifest %s does not describe %s: %w", path, m.Root(), err)
	}
	return m, nil
}

// openFolder returns the cached manifest of the folder root if it is still valid; otherwise it
// scans root and caches the manifest.
func openFolder(ctx context.Context, root string, opt OpenOptions) (*dataset.Manifest, error) {
	cached, err := CachedManifest(root, opt)
	if err != nil {
		opt.Log(fmt.Sprintf("staging: the manifest of %s is not cached: %v", root, err))
		return Scan(ctx, root, opt.ScanOptions)
	}
	m, err := readCached(ctx, cached, root)
	if err == nil {
		return m, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
		opt.Log(fmt.Sprintf("staging: scanning %s again: %v", root, err))
	}
	m, dangling, err := scanTree(ctx, root, opt.ScanOptions)
	if err != nil {
		return nil, err
	}
	if dangling > 0 { // when one leads somewhere again, its folder has not changed
		return m, nil
	}
	err = os.MkdirAll(filepath.Dir(cached), 0o700)
	if err == nil {
		err = dataset.WriteParquet(cached, m)
	}
	if err != nil {
		opt.Log(fmt.Sprintf("staging: the manifest of %s is not cached: %v", root, err))
	}
	return m, nil
}

// CachedManifest returns where Open, with these options, keeps the manifest of the folder dir,
// whether or not it exists, or why it cannot be kept.
func CachedManifest(dir string, opt OpenOptions) (string, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("staging: %w", err)
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	if opt.WholeFiles {
		root += "\x00files" // no path contains a zero byte
	}
	for _, pattern := range opt.Only {
		root += "\x00only " + pattern
	}
	root += "\x003" // manifests of version 2 had files beside images as samples
	key := sha256.Sum256([]byte(root))
	return filepath.Join(caches, "rankpool", "manifests", hex.EncodeToString(key[:16])+".parquet"), nil
}

// readCached returns the cached manifest of root, unless it no longer describes root. The error
// wraps fs.ErrNotExist if there is no cached manifest.
func readCached(ctx context.Context, cached, root string) (*dataset.Manifest, error) {
	if _, err := os.Stat(cached); err != nil {
		return nil, err
	}
	m, err := dataset.ReadParquet(cached)
	if err != nil {
		return nil, err
	}
	if m.Root() != root {
		return nil, fmt.Errorf("manifest %s is of %s", cached, m.Root())
	}
	folders := m.Folders()
	err = inParallel(ctx, len(folders),
		func(i int) error { return checkFolderTime(root, folders[i]) })
	if err == nil {
		err = checkSpread(ctx, m)
	}
	if err != nil {
		// not wrapped: a missing file is not a missing cache
		return nil, fmt.Errorf("its cached manifest is out of date: %s", err.Error())
	}
	return m, nil
}
