package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rankpool/mpicache"
)

// controlDeadline bounds each call of the launcher at a door.
const controlDeadline = 2 * time.Second

// dialDoor connects to the door at path as one that trains nothing.
func dialDoor(path string) (*mpicache.Client, error) {
	return mpicache.Dial(path, mpicache.ControlTrainer, 0, 0, controlDeadline)
}

// A dataStatus says how far training is with one data set.
type dataStatus mpicache.DataStatus

func (s dataStatus) String() string {
	return fmt.Sprintf("%s epoch %d: batch %d of %d, hits %.1f %%", s.Name, s.Epoch, s.Batch, s.Batches, s.hitPercent())
}

func (s dataStatus) hitPercent() float64 {
	if s.Draws == 0 {
		return 0
	}
	return 100 * float64(s.Hits) / float64(s.Draws)
}

// doorStatus returns the state of every data set in training.
func doorStatus(c *mpicache.Client) ([]dataStatus, error) {
	reply, err := c.Call(mpicache.KindStatus, nil)
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
	_, err = c.Call(mpicache.KindShutdown, nil)
	return errors.Join(err, c.Close())
}

// watchStatus asks the door at path once a second until done is closed, and sends the data set that moves on.
// A rank that is gone is asked again: it may come back.
func watchStatus(path string, done <-chan struct{}) <-chan dataStatus {
	moving := make(chan dataStatus, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var c *mpicache.Client
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
			all, err := doorStatus(c)
			if err != nil {
				_ = c.Close() // the error before it is the news
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
