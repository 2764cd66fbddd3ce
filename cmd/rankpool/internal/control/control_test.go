package control

import (
	"net"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/mpicache/door/doortest"
)

func TestStatus(t *testing.T) {
	path := doortest.Listen(t, func(conn net.Conn) {
		doortest.Answer(
			conn, func(door.Kind) ([]byte, bool) { return []byte(doortest.Status), true }, nil)
	})
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := Status(c)
	if err != nil || len(all) != 1 {
		t.Fatalf("status: %v, %v", all, err)
	}
	if got := all[0].String(); got != "train epoch 1: batch 3 of 10, hits 75.0 %" {
		t.Errorf("status is %q", got)
	}
	moving := Watch(path, t.Context().Done())
	if got := <-moving; got != all[0] {
		t.Errorf("watched: %v", got)
	}
}

func TestDoorsWithoutRanks(t *testing.T) {
	if n := EndAll([]string{t.TempDir()}); n != 0 {
		t.Errorf("%d doors without a rank took SHUTDOWN", n)
	}
}
