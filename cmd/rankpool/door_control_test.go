package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// door serves a fake rank's door and returns its path.
func door(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), doorName)
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
	defer c.close()
	all, err := c.status()
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

func TestDoorErrors(t *testing.T) {
	frame := func(kind byte, payload string) string {
		return string([]byte{byte(len(payload)), 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0}) + payload
	}
	for name, c := range map[string]struct{ reply, want string }{
		"an error": {frame(99, "\x02\x00\x00\x00no such thing"), "door: no such thing"},
		"a kind":   {frame(102, ""), "a reply of kind 102 to a request of kind 1"},
		"a length": {"\xff\xff\xff\xff\x65\x00\x00\x00\x00\x00\x00\x00", "a reply of 4294967295 bytes"},
		"the end":  {"\x01", "EOF"},
	} {
		path := door(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 100))
			_, _ = conn.Write([]byte(c.reply))
			conn.Close()
		})
		if _, err := dialDoor(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if n := askToEnd([]string{t.TempDir()}); n != 0 {
		t.Errorf("%d doors without a rank took SHUTDOWN", n)
	}
}
