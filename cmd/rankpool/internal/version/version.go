// Package version is what this build of rankpool is called.
package version

// Text is what "git describe" said when the binary was built (set by the linker, see Makefile).
var Text = "unknown"
