// Package control is a client of ranks' doors that does not train: it gets their status, and ends
// them.
package control

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache/door"
)

// controlDeadline bounds each call of the launcher at a door.
const controlDeadline = 2 * time.Second

// Dial connects to the door at path as a client that does not train.
func Dial(path string) (*door.Client, error) {
	return door.Dial(path, door.NewHello(door.ControlTrainer, 0, 0), controlDeadline)
}

// Answers reports whether a rank serves in its folder.
func Answers(folder string) bool {
	_, serves := Serves(filepath.Join(folder, session.DoorName))
	return serves
}

// Serves returns the names of the data sets that the rank behind the door at path serves; false if
// there is no rank.
func Serves(path string) (data []string, ok bool) {
	c, err := Dial(path)
	if err != nil {
		return nil, false
	}
	defer func() { _ = c.Close() }() // nothing was written that could be lost
	welcome, _ := c.Welcome()        // of another version, perhaps
	for _, set := range welcome.Data {
		data = append(data, set.Name)
	}
	return data, true
}

// A Poller asks the door at Path, and connects again if the connection was closed.
type Poller struct {
	Path   string
	client *door.Client // nil while not connected
}

// Status returns the state of the rank and of all that it knows.
func (p *Poller) Status() (status door.Status, err error) {
	if p.client == nil {
		if p.client, err = Dial(p.Path); err != nil {
			return status, err
		}
	}
	reply, err := p.client.Call(door.KindStatus, nil)
	if err == nil {
		err = json.Unmarshal(reply, &status)
	}
	if err != nil {
		p.Close()
	}
	return status, err
}

// Close ends the connection, if there is one.
func (p *Poller) Close() {
	if p.client != nil {
		_ = p.client.Close() // nothing was written that could be lost
		p.client = nil
	}
}

// shutdown asks the rank behind the door at path to finish.
func shutdown(path string) error {
	c, err := Dial(path)
	if err != nil {
		return err
	}
	_, err = c.Call(door.KindShutdown, nil)
	return errors.Join(err, c.Close())
}

// Watch polls the door at path once a second until done is closed, and sends the data set whose
// training advanced. It keeps polling a rank that is gone: the rank may come back.
func Watch(path string, done <-chan struct{}) <-chan door.DataStatus {
	moving := make(chan door.DataStatus, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		poller := Poller{Path: path}
		defer poller.Close()
		last := map[string]door.DataStatus{}
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			status, _ := poller.Status() // of no data set if the rank is gone
			for _, s := range status.Data {
				if s == last[s.Name] {
					continue
				}
				last[s.Name] = s
				select {
				case moving <- s:
				default: // the previous one was not received yet
				}
			}
		}
	}()
	return moving
}

// EndAll sends SHUTDOWN to the doors of the ranks' folders and returns how many received it.
func EndAll(folders []string) int {
	var took atomic.Int32
	var all sync.WaitGroup
	for _, folder := range folders {
		all.Go(func() {
			if shutdown(filepath.Join(folder, session.DoorName)) == nil {
				took.Add(1)
			}
		})
	}
	all.Wait()
	return int(took.Load())
}
