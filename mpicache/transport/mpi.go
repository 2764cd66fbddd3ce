package transport

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/mpicache/transport/mpi"
)

// closeWait bounds Close's wait for the peers' farewells and then MPI_Finalize. mpirun and srun
// fail a launch in which a rank ends without MPI_Finalize, so a rank on a busy machine has more
// than the milliseconds that it takes; the processes that end a rank wait 10 s.
const closeWait = 8 * time.Second

// quietRank0 and quietOthers are how long rank 0 and the others make no MPI calls before
// MPI_Finalize, so that all have stopped polling when the first one enters it, and rank 0 enters it
// last. They are longer than the longest nap, and allow for a busy machine.
//
// Source: measured: in MPICH 4.0's MPI_Finalize over UCX 1.13 and TCP a rank sends each other rank
// a request, which that one answers when it calls MPI. A rank whose requests have been answered
// blocks until all ranks are there, and answers none. So if peers that still polled answered it,
// and called MPI_Finalize later, they waited for ever: 5 of 8 jobs of four nodes.
const (
	quietRank0  = 200 * time.Millisecond
	quietOthers = 50 * time.Millisecond
)

// MPI is the Transport of a rank under mpirun or srun. One goroutine makes all MPI calls; the
// methods queue calls for it.
type MPI struct {
	*engine
	closing sync.Once
	closed  error
}

var (
	started atomic.Bool // MPI forbids a second MPI_Init
	// running keeps the buffers that MPI may still write to, and their pins, from the garbage
	// collector.
	running *engine
)

// NewMPI starts the MPI library that Load has loaded, and joins all ranks of the launch; without a
// launcher the group is this process alone. It can be called once in a process's life.
func NewMPI() (Transport, error) {
	if started.Swap(true) {
		return nil, errors.New("transport: MPI was started before in this process")
	}
	if err := mpi.Init(); err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	e, err := newEngine(mpi.Rank(), mpi.Size())
	if err != nil {
		return nil, err
	}
	running = e
	go e.run()
	return &MPI{engine: e}, nil
}

// lastWords is how long a failing rank lives on after it has printed its error: Open MPI 5's mpirun
// ends all ranks when one fails, and drops output that it has not yet read.
const lastWords = 300 * time.Millisecond

// ExitMPI ends the process, if MPI has been finalized in it; else it returns. MPI's launcher treats
// any other end as a crash.
func ExitMPI(code int) {
	if code != 0 && running != nil && len(running.peers) > 1 {
		time.Sleep(lastWords)
	}
	mpi.Exit(code)
}

// ThreadLevel returns the name of the thread level that MPI provides: MPI_THREAD_MULTIPLE, or
// MPI_THREAD_SERIALIZED, which suffices.
func (t *MPI) ThreadLevel() string { return mpi.ThreadLevel() }

// Rank implements Transport.
func (t *MPI) Rank() int { return t.rank }

// Size implements Transport.
func (t *MPI) Size() int { return len(t.peers) }

// Do runs f, which may call MPI, on the goroutine that owns MPI.
func (t *MPI) Do(f func()) { t.submit(f) }

// Start implements Transport.
func (t *MPI) Start(handle func(from int, msg []byte)) {
	t.submit(func() { t.handle = handle })
}

// Post implements Transport.
func (t *MPI) Post(to int, msg []byte) {
	checkPost(to, t.Size(), msg)
	buf := make([]byte, len(msg)+1)
	copy(buf, msg)
	buf[len(msg)] = kindMessage
	t.submit(func() { t.post(to, buf) })
}

// Put implements Transport.
func (t *MPI) Put(to int, ticket uint32, segs [][]byte, done func(error)) {
	checkPeer(to, t.Size())
	if to == t.rank {
		t.submit(func() { t.pairs.put(pairKey{to, ticket}, half{segs, done}) })
		return
	}
	messages := group(segs)
	t.submit(func() { t.put(to, tagOf(ticket), messages, done) })
}

// Take implements Transport.
func (t *MPI) Take(from int, ticket uint32, segs [][]byte, done func(error)) {
	checkPeer(from, t.Size())
	if from == t.rank {
		t.submit(func() { t.pairs.take(pairKey{from, ticket}, half{segs, done}) })
		return
	}
	messages := group(segs)
	t.submit(func() { t.take(from, tagOf(ticket), messages, done) })
}

// Close implements Transport. If all peers have closed too, it also ends MPI; otherwise it does
// not, since MPI_Finalize waits for all ranks, and the process should exit soon.
func (t *MPI) Close() error {
	t.closing.Do(func() {
		t.submit(t.farewell)
		t.box.close()
		late := time.After(closeWait + time.Second)
		select {
		case <-t.ended:
			t.closed = t.missing()
		case <-late:
			t.closed = errors.New("transport: closed while MPI was silent")
		}
		if t.closed != nil {
			return
		}
		select {
		case <-t.finalized:
		case <-late:
		}
	})
	return t.closed
}
