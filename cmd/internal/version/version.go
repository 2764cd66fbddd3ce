// Package version holds the version of this build of rankpool.
package version

// Text is the output of "git describe" at build time (set by the linker, see Makefile).
var Text = "unknown"
