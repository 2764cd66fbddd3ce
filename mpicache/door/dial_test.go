package door

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClientRefusesNonsense checks Dial's errors for servers that are not doors.
func TestClientRefusesNonsense(t *testing.T) {
	frame := func(kind byte, payload string) string {
		return string([]byte{byte(len(payload)), 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0}) + payload
	}
	for name, c := range map[string]struct{ reply, want string }{
		"an error": {frame(99, "\x02\x00\x00\x00no such thing"), "the rank refused: no such thing"},
		"a kind":   {frame(102, ""), "a reply of kind 102"},
		"a length": {
			"\xff\xff\xff\xff\x65\x00\x00\x00\x00\x00\x00\x00",
			"a frame of kind 101 with 4294967295 bytes",
		},
		"the end": {"\x01", "EOF"},
	} {
		path := filepath.Join(t.TempDir(), "door")
		door, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if conn, err := door.Accept(); err == nil {
				_, _ = conn.Read(make([]byte, 100))
				_, _ = conn.Write([]byte(c.reply))
				_ = conn.Close()
			}
		}()
		if _, err := Dial(path, NewHello(ControlTrainer, 0, 0), 10*time.Second); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		_ = door.Close()
	}
}
