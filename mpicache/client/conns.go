// Package client serves the clients at a rank's door: training processes and their workers, and
// launchers. It checks what they ask for, and passes it to the trainings.
package client

import (
	"fmt"
	"sync"

	"rankpool/mpicache/door"
	"rankpool/mpicache/training"
)

// Config is what a door needs of its rank.
type Config struct {
	Rank    *training.Rank
	Sampler string // that training must use, except for sequential passes; "": any
	Welcome door.Welcome
	SlabFD  int
	// Status describes the rank.
	Status func() door.Status
	// Shutdown is called when a client asks the rank to end.
	Shutdown func()
}

// Door has the connections of the clients. Its methods may be called concurrently.
type Door struct {
	Config
	mu    sync.Mutex
	conns map[*Conn]struct{}
}

// NewDoor returns a door without clients. Its configuration may be completed until the first one
// is served.
func NewDoor() *Door { return &Door{conns: map[*Conn]struct{}{}} }

// New returns the connection of a client.
func (d *Door) New(sock door.Socket) *Conn {
	c := &Conn{
		door: d, Hello: door.Hello{Trainer: door.ControlTrainer}, leases: map[uint32]leaseRef{},
		waiting: map[uint64]*training.Set{}, trainings: map[uint32]*training.Training{},
	}
	c.Conn = door.NewConn(sock, d.Rank.Log, d.Rank.Beside, c)
	return c
}

// enter admits a client, unless this rank or the client's process has too many connections.
func (d *Door) enter(c *Conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	same := 0
	for other := range d.conns {
		if other.PID() == c.PID() && c.PID() != 0 {
			same++
		}
	}
	switch {
	case len(d.conns) >= maxConns:
		return fmt.Errorf("this rank has %d connections, and takes no more", len(d.conns))
	case same >= maxConnsOfOne:
		return fmt.Errorf("process %d has %d connections to this rank, and gets no more", c.PID(),
			same)
	}
	d.conns[c] = struct{}{}
	return nil
}

func (d *Door) leave(c *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

// Len returns the number of connections.
func (d *Door) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

// Trainers returns the number of connected training processes, each with one connection or more:
// its workers have their own.
func (d *Door) Trainers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	type process struct {
		trainer uint32
		family  uint64
	}
	open := map[process]bool{}
	for c := range d.conns {
		if id := c.ID(); id.Trainer != door.ControlTrainer {
			open[process{id.Trainer, id.Family}] = true
		}
	}
	return len(open)
}

// OfFamily returns the open connections of a trainer's family.
func (d *Door) OfFamily(trainer int, family uint64) (conns []training.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		if id := c.ID(); int(id.Trainer) == trainer && id.Family == family {
			conns = append(conns, c)
		}
	}
	return conns
}

// HangUp ends the connections of all clients.
func (d *Door) HangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.HangUp()
	}
}
