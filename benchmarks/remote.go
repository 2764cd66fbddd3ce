package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
)

var remoteSection = section{
	name: "remote",
	about: "rank 1 of two on this machine reads batches of 64 samples of 110 KiB out of rank 0's " +
		"slab into its own, four batches asked for ahead: " +
		"through the transport of the ranks, and by bare MPI_Isend and MPI_Irecv of the same bytes, " +
		"called from Go. In turns, medians of eleven rounds; the middle one of seven such runs.",
	measure: ratios((*bench).remote),
}

func (b *bench) remote() ([]row, error) {
	launcher, family, err := mpirun()
	if err != nil {
		return nil, err
	}
	batches, rounds, runs := 40, 11, 7
	if b.quick {
		batches, rounds, runs = 2, 1, 1
	}
	all := make([]remoteRates, runs)
	for i := range all {
		if err := inChild(launcher, &all[i], "remote", strconv.Itoa(batches),
			strconv.Itoa(rounds)); err != nil {
			return nil, err
		}
	}
	ratio := func(r remoteRates) float64 { return r.Transport / r.RawMPI }
	slices.SortFunc(all, func(a, b remoteRates) int {
		return cmp.Compare(ratio(a), ratio(b))
	})
	middle := all[runs/2]
	return []row{ratioRow(fmt.Sprintf("110 KiB remote reads / raw MPI transfer (%s)", family),
		rateText(middle.Transport), rateText(middle.RawMPI), ratio(middle), atLeast, 0.9)}, nil
}

// mpirun returns the words that start two ranks with the mpirun in $PATH, and its MPI.
func mpirun() ([]string, mpilib.Family, error) {
	path, err := exec.LookPath("mpirun")
	if err != nil {
		return nil, "", fmt.Errorf("the ranks are started by mpirun: %w", err)
	}
	words, family := []string{path}, mpilib.FamilyOfMpirun(path)
	if family == mpilib.OpenMPI {
		words = append(words, "--oversubscribe", "--bind-to", "none")
	}
	return append(words, "-n", "2"), family, nil
}

// remoteChild is one of the two ranks; args are the batches per round and the number of rounds.
func remoteChild(args []string) (any, error) {
	batches, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	if _, err := transport.Load(mpilib.Choices(os.Getenv)); err != nil {
		return nil, err
	}
	t, err := transport.NewMPI()
	if err != nil {
		return nil, err
	}
	rates, err := measureRemote(t, remoteRead{
		SampleBytes: 110 << 10, Batch: 64, Ahead: 4, Batches: batches, Rounds: rounds,
	})
	if err := errors.Join(err, t.Close()); err != nil {
		return nil, err
	}
	if rates == (remoteRates{}) {
		return nil, nil
	}
	return rates, nil
}
