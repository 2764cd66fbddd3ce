package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"rankpool/mpicache"
)

const (
	doorMagic       = "rankpool"
	doorHeader      = 12        // bytes before a frame's payload
	doorMaxReply    = 256 << 20 // bytes of payload
	doorReply       = 100       // added to a request's kind
	controlDeadline = 2 * time.Second
)

// A control is a connection to a rank's door that asks for no samples (docs/wire/README.md). It has one caller at a time.
type control struct{ conn net.Conn }

// dialDoor connects to the door at path and says hello.
func dialDoor(path string) (*control, error) {
	conn, err := net.DialTimeout("unix", path, controlDeadline)
	if err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	c := &control{conn}
	hello := append([]byte(doorMagic), make([]byte, 20)...)
	binary.LittleEndian.PutUint16(hello[8:], mpicache.ProtocolVersion)
	binary.LittleEndian.PutUint32(hello[12:], mpicache.ControlTrainer)
	if _, err := c.request(mpicache.KindHello, hello); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *control) close() { c.conn.Close() }

// request sends one frame and returns the payload of its reply. The slab's descriptor that HELLO's reply carries
// is dropped by the kernel, because nobody asks for it.
func (c *control) request(kind mpicache.Kind, payload []byte) ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(controlDeadline)); err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	frame := make([]byte, doorHeader, doorHeader+len(payload))
	binary.LittleEndian.PutUint32(frame, uint32(len(payload)))
	binary.LittleEndian.PutUint16(frame[4:], uint16(kind))
	if _, err := c.conn.Write(append(frame, payload...)); err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	if _, err := io.ReadFull(c.conn, frame); err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	length, replied := binary.LittleEndian.Uint32(frame), mpicache.Kind(binary.LittleEndian.Uint16(frame[4:]))
	if length > doorMaxReply {
		return nil, fmt.Errorf("door: a reply of %d bytes", length)
	}
	reply := make([]byte, length)
	if _, err := io.ReadFull(c.conn, reply); err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	switch {
	case replied == mpicache.KindError && length >= 4:
		return nil, errors.New("door: " + string(reply[4:]))
	case replied != kind+doorReply:
		return nil, fmt.Errorf("door: a reply of kind %d to a request of kind %d", replied, kind)
	}
	return reply, nil
}

// A dataStatus says how far training is with one data set.
type dataStatus struct {
	Name    string `json:"name"`
	Epoch   int    `json:"epoch"`
	Batch   int    `json:"batch"`
	Batches int    `json:"batches"`
	Hits    int64  `json:"hits"`
	Draws   int64  `json:"draws"`
}

func (s dataStatus) String() string {
	return fmt.Sprintf("%s epoch %d: batch %d of %d, hits %.1f %%", s.Name, s.Epoch, s.Batch, s.Batches, s.hitPercent())
}

func (s dataStatus) hitPercent() float64 {
	if s.Draws == 0 {
		return 0
	}
	return 100 * float64(s.Hits) / float64(s.Draws)
}

// status returns the state of every data set in training.
func (c *control) status() ([]dataStatus, error) {
	reply, err := c.request(mpicache.KindStatus, nil)
	if err != nil {
		return nil, err
	}
	var status struct {
		Data []dataStatus `json:"data"`
	}
	if err := json.Unmarshal(reply, &status); err != nil {
		return nil, fmt.Errorf("door: status: %w", err)
	}
	return status.Data, nil
}

// shutdownDoor asks the rank behind the door at path to finish.
func shutdownDoor(path string) error {
	c, err := dialDoor(path)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = c.request(mpicache.KindShutdown, nil)
	return err
}

// watchStatus asks the door at path once a second until done is closed, and sends the data set that moves on.
// A rank that is gone is asked again: it may come back.
func watchStatus(path string, done <-chan struct{}) <-chan dataStatus {
	moving := make(chan dataStatus, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var c *control
		last := map[string]dataStatus{}
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if c == nil {
				c, _ = dialDoor(path)
			}
			if c == nil {
				continue
			}
			all, err := c.status()
			if err != nil {
				c.close()
				c = nil
				continue
			}
			for _, s := range all {
				if s == last[s.Name] {
					continue
				}
				last[s.Name] = s
				select {
				case moving <- s:
				default: // the last one was not shown yet
				}
			}
		}
	}()
	return moving
}
