// Package clusters holds the cluster files of the simulator's time model; docs/time-model.md
// describes their values.
package clusters

import "embed"

// Files are the cluster files that are shipped, NAME.toml each.
//
//go:embed *.toml
var Files embed.FS
