package client

import (
	"fmt"
	"strings"
	"testing"

	"rankpool/mpicache/door"
)

// TestConnectionsAreBounded fills a rank with connections: the next client is told why it is
// refused, and is admitted once another has left.
func TestConnectionsAreBounded(t *testing.T) {
	d := NewDoor()
	client := func(pid int) *Conn {
		c := &Conn{Conn: &door.Conn{}, door: d}
		c.Conn.PID = int32(pid)
		return c
	}
	refused := func(pid int, want string) {
		t.Helper()
		if err := client(pid).Enter(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the door returned %v, want %q", err, want)
		}
	}
	for i := range maxConns {
		d.conns[client(1e6+i)] = struct{}{}
	}
	refused(1, fmt.Sprintf("this rank has %d connections", maxConns))
	clear(d.conns)
	for range maxConnsOfOne - 1 {
		d.conns[client(7)] = struct{}{}
	}
	last := client(7)
	if err := last.Enter(); err != nil {
		t.Fatal(err)
	}
	refused(7, fmt.Sprintf("process 7 has %d connections", maxConnsOfOne))
	if err := client(8).Enter(); err != nil {
		t.Error(err)
	}
	d.leave(last)
	if err := client(7).Enter(); err != nil {
		t.Error(err)
	}
}
