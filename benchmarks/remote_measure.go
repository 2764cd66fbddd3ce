package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"rankpool/mpicache/slab"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpi"
)

// remoteRead configures measureRemote: rank 1 reads batches of samples out of rank 0's slab into
// its own.
type remoteRead struct {
	SampleBytes int64
	Batch       int // samples in a batch
	Ahead       int // batches asked for before the first is there, ≥ 1
	Batches     int // in a round
	Rounds      int // of each kind, in turns
}

// remoteRates are rank 1's median rates over rounds, in bytes a second; at rank 0 they are 0.
type remoteRates struct {
	Transport, RawMPI float64
}

// measureRemote compares reads through a Transport with the same transfers by bare MPI_Isend and
// MPI_Irecv, in turns in one run.
//
// Both ranks of a group of two call it, on a transport that is not started; it neither closes the
// transport nor leaves it usable for other messages. A batch is requested by one small message and
// answered by its samples. Each slab holds eight batches, or Ahead if that is more.
func measureRemote(t transport.Transport, r remoteRead) (remoteRates, error) {
	m, ok := t.(*transport.MPI)
	if !ok || t.Size() != 2 {
		return remoteRates{}, errors.New("the benchmark wants two ranks under MPI")
	}
	memory, err := slab.New(r.SampleBytes*int64(r.Batch)*int64(max(8, r.Ahead)), nil, nil)
	if err != nil {
		return remoteRates{}, err
	}
	// The slab is not closed: MPI may still access it.
	run := &remoteRun{
		remoteRead: r, ranks: m, slab: memory, asked: make(chan struct{}, r.Batches),
		barrier: make(chan struct{}, 1),
	}
	t.Start(run.handle)
	var through, raw []float64
	volume := float64(r.SampleBytes) * float64(r.Batch) * float64(r.Batches)
	for range r.Rounds {
		for _, kind := range []struct {
			round func() error
			rates *[]float64
		}{{run.bare, &raw}, {run.transported, &through}} {
			run.meet()
			began := time.Now()
			if err := kind.round(); err != nil {
				return remoteRates{}, err
			}
			*kind.rates = append(*kind.rates, volume/time.Since(began).Seconds())
		}
	}
	run.meet()
	if m.Rank() == 0 {
		return remoteRates{}, nil
	}
	slices.Sort(through)
	slices.Sort(raw)
	return remoteRates{Transport: through[len(through)/2], RawMPI: raw[len(raw)/2]}, nil
}

// remoteRun is one rank's side of a measurement.
type remoteRun struct {
	remoteRead
	ranks   *transport.MPI
	slab    *slab.Slab
	ticket  uint32
	asked   chan struct{}
	barrier chan struct{}
}

// handle answers a request for a batch (a ticket, 1 byte), and a barrier (empty).
func (r *remoteRun) handle(from int, msg []byte) {
	if len(msg) == 0 {
		r.barrier <- struct{}{}
		return
	}
	r.ranks.Put(from, r.ticket, r.samples(int(r.ticket)), func(error) { r.asked <- struct{}{} })
	r.ticket++
}

// meet waits for the other rank.
func (r *remoteRun) meet() {
	r.ranks.Post(1-r.ranks.Rank(), nil)
	<-r.barrier
}

// samples returns the places of a batch.
func (r *remoteRun) samples(batch int) [][]byte {
	segs := make([][]byte, r.Batch)
	for i := range segs {
		segs[i] = r.slab.Bytes(int64(batch%max(8, r.Ahead)*r.Batch+i)*r.SampleBytes, r.SampleBytes)
	}
	return segs
}

// transported is a round through the transport.
func (r *remoteRun) transported() error {
	if r.ranks.Rank() == 0 {
		for range r.Batches {
			<-r.asked
		}
		return nil
	}
	done := make(chan error, r.Batches)
	ask := func() {
		r.ranks.Take(0, r.ticket, r.samples(int(r.ticket)), func(err error) { done <- err })
		r.ranks.Post(0, []byte{1})
		r.ticket++
	}
	for i := range r.Ahead + r.Batches {
		if i >= r.Ahead {
			if err := <-done; err != nil {
				return err
			}
		}
		if i < r.Batches {
			ask()
		}
	}
	return nil
}

// bare is a round by MPI calls alone, on the goroutine that owns them.
func (r *remoteRun) bare() error {
	ended := make(chan error)
	r.ranks.Do(func() {
		if r.ranks.Rank() == 0 {
			ended <- r.bareOwner()
		} else {
			ended <- r.bareReader()
		}
	})
	return <-ended
}

// bareReader asks for batches and receives them, Ahead of them under way.
func (r *remoteRun) bareReader() error {
	tag := mpi.MaxTag()
	var under [][]mpi.Request
	for i := range r.Ahead + r.Batches {
		if i >= r.Ahead {
			if err := wait(under[0]); err != nil {
				return err
			}
			under = under[1:]
		}
		if i >= r.Batches {
			continue
		}
		var requests []mpi.Request
		for _, s := range r.samples(i) {
			q, err := mpi.Irecv(s, 0, tag)
			if err != nil {
				return err
			}
			requests = append(requests, q)
		}
		ask, err := mpi.Isend(r.slab.Bytes(0, 1), 0, tag)
		if err != nil {
			return err
		}
		under = append(under, append(requests, ask))
	}
	return nil
}

// bareOwner answers the reader's requests.
func (r *remoteRun) bareOwner() error {
	tag := mpi.MaxTag()
	var under []mpi.Request
	for i := range r.Batches {
		ask, err := mpi.Irecv(r.slab.Bytes(0, 1), 1, tag)
		if err != nil {
			return err
		}
		if err := wait([]mpi.Request{ask}); err != nil {
			return err
		}
		for _, s := range r.samples(i) {
			q, err := mpi.Isend(s, 1, tag)
			if err != nil {
				return err
			}
			under = append(under, q)
		}
	}
	return wait(under)
}

// wait spins until all requests have finished.
func wait(requests []mpi.Request) error {
	for len(requests) > 0 {
		done := mpi.Test(requests, nil)
		for _, d := range done {
			if d.Err != nil {
				return fmt.Errorf("bare MPI: %w", d.Err)
			}
		}
		requests = requests[len(done):]
	}
	return nil
}
