package mpi

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMPIUnderSignals sends messages while every thread of the process gets signals and memory is
// collected. Under mpirun (test-mpi.sh) it does so with a real library, whose handlers Go would not
// survive, and with the library's threads.
func TestMPIUnderSignals(t *testing.T) {
	startAny(t)
	end := make(chan struct{})
	var beside sync.WaitGroup
	for range 2 {
		beside.Go(func() { litter(end) })
	}
	beside.Go(func() { signalThreads(t, end) })
	for i := range 300 {
		ring(t, byte(i))
	}
	close(end)
	beside.Wait()
	if err := Finalize(); err != nil {
		t.Error(err)
	}
}

// ring sends a message to the next rank and receives one from the rank before.
func ring(t *testing.T, mark byte) {
	n := Size()
	sent, got := bytes.Repeat([]byte{mark}, 110<<10), make([]byte, 110<<10)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&sent[0])
	pins.Pin(&got[0])
	var q Requests
	q.Append(must(Irecv(got, (Rank()+n-1)%n, 1)))
	q.Append(must(Isend(sent, (Rank()+1)%n, 1)))
	for left := 2; left > 0; {
		done, err := q.Testsome(nil)
		for _, d := range done {
			if d.Err != nil {
				err = d.Err
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		left -= len(done)
		runtime.Gosched()
	}
	if !bytes.Equal(sent, got) {
		t.Fatalf("message %d has other bytes", mark)
	}
}

// litter makes garbage, and collects it.
func litter(end <-chan struct{}) {
	for {
		var keep [][]byte
		for range 500 {
			keep = append(keep, make([]byte, 4096))
		}
		runtime.GC()
		runtime.KeepAlive(keep)
		select {
		case <-end:
			return
		default:
		}
	}
}

// signalThreads sends a signal to one thread after the other, including those of C, and waits for
// each to arrive.
func signalThreads(t *testing.T, end <-chan struct{}) {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, unix.SIGUSR1)
	defer signal.Stop(arrived)
	sent := 0
	for {
		for _, thread := range threads(t) {
			if unix.Tgkill(unix.Getpid(), thread, unix.SIGUSR1) == nil {
				<-arrived
				sent++
			}
			select {
			case <-end:
				t.Logf("%d signals", sent)
				if sent < 10 {
					t.Errorf("only %d signals were sent", sent)
				}
				return
			default:
			}
		}
	}
}

// threads returns the IDs of this process's threads that do not block the signal: a library may
// have some that do.
func threads(t *testing.T) (numbers []int) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		number, _ := strconv.Atoi(e.Name())
		status, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", number))
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(status), "SigBlk:")
		blocked, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
		if err == nil && blocked>>(unix.SIGUSR1-1)&1 == 0 {
			numbers = append(numbers, number)
		}
	}
	return numbers
}
