package index

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"rankpool/staging/dataset"
)

// OpenOptions controls Open. The zero value is ready to use.
type OpenOptions struct {
	ScanOptions
	// where the data are now, if the manifest file names another root; "": the manifest's root
	Root     string
	CacheDir string // the folder of cached manifests; "": rankpool in os.UserCacheDir
	NoCache  bool   // neither use nor write a cached manifest
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
	if !info.IsDir() {
		return openManifest(ctx, abs, opt)
	}
	if opt.Root != "" {
		return nil, fmt.Errorf("staging: %s is a folder; another root is for manifest files", abs)
	}
	if own := filepath.Join(abs, ManifestName); isRegular(own) {
		opt.Root = abs
		return openManifest(ctx, own, opt)
	}
	if opt.NoCache {
		return Scan(ctx, abs, opt.ScanOptions)
	}
	return openFolder(ctx, abs, opt)
}

func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func openManifest(ctx context.Context, path string, opt OpenOptions) (*dataset.Manifest, error) {
	m, err := dataset.ReadParquet(path)
	if err != nil {
		return nil, err
	}
	if opt.Root != "" {
		root, err := filepath.Abs(opt.Root)
		if err != nil {
			return nil, fmt.Errorf("staging: %w", err)
		}
		m = m.WithRoot(root)
	}
	if err := checkSpread(ctx, m, opt.Concurrency); err != nil {
		return nil, fmt.Errorf("staging: manifest %s does not describe %s: %w", path, m.Root(), err)
	}
	return m, nil
}
