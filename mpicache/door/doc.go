// Package door is the socket at which a rank serves the clients of its node: the frames of the
// protocol (docs/wire/README.md), the rank's end of a connection (Conn), and a client of it in Go
// (Client). It knows nothing about samples and plans except how to encode them: the Handler behind
// the door decides what a client may ask for, and what it gets.
package door
