// Command rankpool feeds deep-learning training on supercomputers: one MPI rank per node pools the
// nodes' memory into one cache, stages samples from storage ahead of their use, and serves the
// training processes.
package main

import (
	"os"

	"rankpool/mpicache/transport"
)

func main() {
	dropLeftovers()
	code := run(os.Args[1:])
	transport.ExitMPI(code)
	os.Exit(code)
}
