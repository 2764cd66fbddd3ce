// Package control is a client of ranks' doors that does not train: it gets their status, and ends
// them.
package control

import (
	"encoding/json"
	"errors"
	"fmt"
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

// A DataStatus is the progress of training with one data set.
type DataStatus door.DataStatus

func (s DataStatus) String() string {
	return fmt.Sprintf("%s epoch %d: batch %d of %d, hits %.1f %%", s.Name, s.Epoch, s.Batch,
		s.Batches, s.HitPercent())
}

// HitPercent returns the share of the epoch's draws that were hits, in percent.
func (s DataStatus) HitPercent() float64 {
	if s.Draws == 0 {
		return 0
	}
	return 100 * float64(s.Hits) / float64(s.Draws)
}

// Status returns the state of every data set in training.
func Status(c *door.Client) ([]DataStatus, error) {
	reply, err := c.Call(door.KindStatus, nil)
	if err != nil {
		return nil, err
	}
	var status struct {
		Data []DataStatus `json:"data"`
	}
	if err := json.Unmarshal(reply, &status); err != nil {
		return nil, fmt.Errorf("door: status: %w", err)
	}
	return status.Data, nil
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
func Watch(path string, done <-chan struct{}) <-chan DataStatus {
	moving := make(chan DataStatus, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var c *door.Client
		last := map[string]DataStatus{}
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if c == nil {
				c, _ = Dial(path)
			}
			if c == nil {
				continue
			}
			all, err := Status(c)
			if err != nil {
				_ = c.Close() // the error of Status counts
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
