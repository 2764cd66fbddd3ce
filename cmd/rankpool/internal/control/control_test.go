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
	p := Poller{Path: path}
	defer p.Close()
	status, err := p.Status()
	want := door.DataStatus{Name: "train", Epoch: 1, Batch: 3, Batches: 10, Hits: 30, Draws: 40}
	if err != nil || len(status.Data) != 1 || status.Data[0] != want {
		t.Fatalf("status: %+v, %v", status, err)
	}
	moving := Watch(path, t.Context().Done())
	if got := <-moving; got != want {
		t.Errorf("watched: %v", got)
	}
}

func TestDoorsWithoutRanks(t *testing.T) {
	if n := EndAll([]string{t.TempDir()}); n != 0 {
		t.Errorf("%d doors without a rank took SHUTDOWN", n)
	}
}
