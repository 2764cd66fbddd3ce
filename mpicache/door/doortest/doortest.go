// Package doortest provides a fake door of a rank for tests of clients, and the golden frames.
package doortest

import (
	"bytes"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/mpicache/door"
)

// Status is the status of a rank in the second of its epochs.
const Status = `{"data":[{"name":"train","epoch":1,"batch":3,"batches":10,"hits":30,"draws":40}]}`

// Listen calls serve for each connection to a door, and returns the door's path.
func Listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "door.sock")
	ListenAt(t, path, serve)
	return path
}

// ListenAt calls serve for each connection to a door at path.
func ListenAt(t *testing.T, path string, serve func(net.Conn)) net.Listener {
	t.Helper()
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
	return l
}

// Answer answers the frames of a connection until it ends: reply returns a frame's payload, and
// whether there is an answer. answered, if not nil, is called after each answer.
func Answer(conn net.Conn, reply func(door.Kind) ([]byte, bool), answered func(door.Kind)) {
	var buf []byte
	for {
		f, err := door.Read(conn, &buf, door.Limits{}.Payload)
		if err != nil {
			return
		}
		if f.Kind == door.KindHello && !bytes.HasPrefix(f.Payload, []byte("rankpool")) {
			conn.Close()
			return
		}
		body, ok := reply(f.Kind)
		if !ok {
			continue
		}
		frame := door.AppendFrame(nil, f.Kind.Reply(), f.Ticket, body)
		if _, err := conn.Write(frame); err != nil {
			return
		}
		if answered != nil {
			answered(f.Kind)
		}
	}
}

// GoldenFrames reads the frames in docs/wire/frames.txt, which the Python client's tests read too.
func GoldenFrames(t testing.TB, path string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	frames := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || name == "#" {
			continue
		}
		if frames[name], err = hex.DecodeString(digits); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return frames
}
