// Package version is what this build of rankpool is called.
package version

// Text is the output of "git describe" at build time (set by the linker, see Makefile).
var Text = "unknown"
