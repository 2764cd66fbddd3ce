// Package door is the socket at which a rank serves the clients of its node: the frames of the
// protocol (docs/wire/README.md), the rank's end of a connection (Conn), and a client of it in Go
// (Client). It knows nothing of samples and plans but how they are written: what a client may ask
// for, and what it gets, decides the Handler behind the door.
package door
