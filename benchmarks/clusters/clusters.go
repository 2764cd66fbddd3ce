// Package clusters holds the cluster files of the simulator's time model;
// benchmarks/simulator/README.md describes their values.
package clusters

import "embed"

// Files holds the shipped cluster files, each NAME.toml.
//
//go:embed *.toml
var Files embed.FS
