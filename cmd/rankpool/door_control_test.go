package main

import (
	"net"
	"path/filepath"
	"testing"

	"rankpool/cmd/rankpool/internal/session"
)

// door serves a fake rank's door and returns its path.
func door(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), session.DoorName)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return path
}

func TestStatus(t *testing.T) {
	path := door(t, func(conn net.Conn) { answer(conn, 1, "") })
	c, err := dialDoor(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := doorStatus(c)
	if err != nil || len(all) != 1 {
		t.Fatalf("status: %v, %v", all, err)
	}
	if got := all[0].String(); got != "train epoch 1: batch 3 of 10, hits 75.0 %" {
		t.Errorf("status says %q", got)
	}
	moving := watchStatus(path, t.Context().Done())
	if got := <-moving; got != all[0] {
		t.Errorf("watched: %v", got)
	}
}

func TestDoorsWithoutRanks(t *testing.T) {
	if n := askToEnd([]string{t.TempDir()}); n != 0 {
		t.Errorf("%d doors without a rank took SHUTDOWN", n)
	}
}
