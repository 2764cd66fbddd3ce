package rank

import (
	"fmt"
	"path/filepath"
	"strings"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/mpicache"
	"rankpool/staging/sizes"
	"rankpool/staging/tier"
)

// parsePackages parses "/scratch:64GiB", a folder and how much each rank may write there. The
// folder may contain colons. "" means none.
func parsePackages(text string) (dir string, bytes int64, err error) {
	if text == "" {
		return "", 0, nil
	}
	at := strings.LastIndexByte(text, ':')
	if at <= 0 {
		return "", 0, fmt.Errorf("%q is not DIR:SIZE, such as /scratch:64GiB", text)
	}
	bytes, err = sizes.Parse(text[at+1:])
	if err == nil && bytes == 0 {
		err = fmt.Errorf("%q has no size: leave packages out for none", text)
	}
	return text[:at], bytes, err
}

// checkPackages checks the option packages of --system, and makes its folder absolute.
func (o *CacheOptions) checkPackages() error {
	dir, _, err := parsePackages(o.System.Packages)
	if err != nil {
		return exit.Usagef("--system: packages: %w", err)
	}
	if dir == "" {
		return nil
	}
	if o.Tier != "" {
		return exit.Usagef("--system: samples of packages stay in memory: leave --tier out")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	o.System.Packages = abs + o.System.Packages[len(dir):]
	return nil
}

// openPackages opens this rank's files of packages, an equal part for each data set. If the folder
// cannot be used, it logs a warning, and samples are read one by one.
func (t *tiers) openPackages(data []mpicache.DataSet) error {
	dir, bytes, err := parsePackages(t.opt.System.Packages)
	if err != nil || dir == "" {
		return err
	}
	bytes /= int64(len(data))
	for i := range data {
		d := &data[i]
		mean := ownedBytes(d, 1, 1)[0] / int64(max(d.Held(), 1))
		block := tier.BlockBytes(bytes, mean)
		size := bytes / block * block
		disk, err := tier.Open(dir, tier.Options{SizeBytes: size, BlockBytes: block})
		if err != nil {
			t.logger.Warn("this rank has no packages; their samples are read one by one", "data", d.Name,
				"error", err)
			continue
		}
		t.disks = append(t.disks, disk)
		d.Packages, d.PackageBytes, d.PackageBlockBytes = disk, size, block
		t.logger.Info("packages of this rank", "data", d.Name, "folder", dir, "size",
			memory.Text(size))
	}
	return nil
}
