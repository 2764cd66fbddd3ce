// Logmaker writes the run log of an invented training to stdout, for tests in a browser and
// for measurements:
//
//	go run ./cmd/internal/runlog/logmaker -nodes 1024 -epochs 10 > big.jsonl
package main

import (
	"flag"
	"fmt"
	"os"

	"rankpool/cmd/internal/runlog/runlogtest"
)

func main() {
	t := runlogtest.Cluster()
	flag.IntVar(&t.Nodes, "nodes", t.Nodes, "nodes")
	flag.IntVar(&t.Epochs, "epochs", t.Epochs, "epochs")
	flag.Float64Var(&t.EpochSeconds, "epoch-seconds", t.EpochSeconds, "seconds of an epoch")
	flag.Float64Var(&t.EverySeconds, "every", t.EverySeconds, "seconds between two lines of a node")
	flag.IntVar(&t.GPUs, "gpus", t.GPUs, "GPUs of a node")
	flag.Uint64Var(&t.Seed, "seed", t.Seed, "of the random numbers")
	flag.Parse()
	if err := t.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "logmaker:", err)
		os.Exit(1)
	}
}
