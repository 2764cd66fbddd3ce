// Logmaker writes the run log of an invented training to stdout, for tests in a browser:
//
//	go run ./cmd/internal/runlog/logmaker > run.jsonl
package main

import (
	"fmt"
	"os"

	"rankpool/cmd/internal/runlog/runlogtest"
)

func main() {
	if err := runlogtest.Cluster().Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "logmaker:", err)
		os.Exit(1)
	}
}
