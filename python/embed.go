// Package python holds the source of the Python client, so that the launcher can hand it to
// training scripts.
package python

import "embed"

// Files is the client: the folder rankpool with its modules, the standard library its only need.
// The launcher writes it below the runtime folder and puts that on PYTHONPATH, so that a script
// imports the client of this version.
//
//go:embed rankpool/*.py
var Files embed.FS
