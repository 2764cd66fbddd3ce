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

// openFolder returns the cached manifest of the folder root if it is still valid; otherwise it
// scans root and caches the manifest.
func openFolder(ctx context.Context, root string, opt OpenOptions) (*dataset.Manifest, error) {
	cached, err := cacheFile(root, opt)
	if err != nil {
		opt.Log(fmt.Sprintf("staging: the manifest of %s is not cached: %v", root, err))
		return Scan(ctx, root, opt.ScanOptions)
	}
	before, err := readCached(ctx, cached, root, opt.Concurrency)
	if err == nil {
		return before, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
		opt.Log(fmt.Sprintf("staging: scanning %s again: %v", root, err))
	}
	m, err := Scan(ctx, root, opt.ScanOptions)
	if err != nil {
		return nil, err
	}
	if before != nil {
		changes := dataset.Compare(before, m, 1)
		opt.Log(fmt.Sprintf("staging: %s has changed since it was last scanned: %s%s", root,
			changes, changes.First()))
	}
	if err := writeCached(cached, m); err != nil {
		opt.Log(fmt.Sprintf("staging: the manifest of %s is not cached: %v", root, err))
	}
	return m, nil
}

// CachedManifest returns where Open keeps the manifest of the folder dir, whether or not it exists,
// or why it cannot be kept.
func CachedManifest(dir string, opt OpenOptions) (string, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("staging: %w", err)
	}
	return cacheFile(root, opt)
}

// cacheFile returns the path of the cached manifest of the folder root, scanned with these options.
func cacheFile(root string, opt OpenOptions) (string, error) {
	cacheDir := opt.CacheDir
	if cacheDir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cacheDir = filepath.Join(user, "rankpool")
	}
	if opt.WholeFiles {
		root += "\x00files" // no path contains a zero byte
	}
	key := sha256.Sum256([]byte(root))
	return filepath.Join(cacheDir, "manifests", hex.EncodeToString(key[:16])+".parquet"), nil
}

// readCached returns the cached manifest of root, together with an error if it no longer describes
// root. The error wraps fs.ErrNotExist if there is no cached manifest.
func readCached(
	ctx context.Context,
	cached, root string,
	concurrency int,
) (*dataset.Manifest, error) {
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
	err = inParallel(ctx, len(folders), concurrency,
		func(i int) error { return checkFolderTime(root, folders[i]) })
	if err == nil {
		err = checkSpread(ctx, m, concurrency)
	}
	if err != nil {
		// not wrapped: a missing file is not a missing cache
		return m, fmt.Errorf("its cached manifest is out of date: %s", err.Error())
	}
	return m, nil
}

func writeCached(cached string, m *dataset.Manifest) error {
	if err := os.MkdirAll(filepath.Dir(cached), 0o700); err != nil {
		return err
	}
	return dataset.WriteParquet(cached, m)
}
