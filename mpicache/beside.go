package mpicache

import (
	"hash/fnv"
	"slices"

	"rankpool/mpicache/door"
	"rankpool/scheduler"
)

// While a process trains on a data set, it may also read it in another order, usually to evaluate.
// It can get the plan of any epoch, since draws that do not depend on scores can be made at any
// time; it reads the samples from storage through the index. This uses none of the rank's memory
// and does not affect the training: its counts and reports are ignored.

// besideStreams is the first number of these streams. A stream's number is derived from its spec,
// so that it is the same for all connections of a process and after a restart.
const besideStreams = 1 << 31

// beside is one of these streams, of one connection.
type beside struct {
	spec scheduler.Spec
	plan scheduler.PlanConfig
}

// openBeside handles OPEN for a stream beside the training on s.
func (c *conn) openBeside(f door.Frame, s *samples, spec scheduler.Spec) error {
	sampler, err := scheduler.NewSampler(spec.SamplerConfig(s.data.Samples))
	if err != nil {
		return door.Refuse("%s", err)
	}
	if sampler.Weighted() {
		return door.Refuse("this process has opened data set %s with another sampler first; %s draws "+
			"by scores, and only the first one has them: "+
			"make it first, or use sequential, torch or uniform beside it", spec.Data, spec.Sampler)
	}
	number := numberOf(spec)
	if _, known := c.besides[number]; !known && len(c.besides) >= maxBesides {
		return door.Refuse(
			"%d streams beside the training are open on this connection: one more is too many",
			len(c.besides))
	}
	if c.besides == nil {
		c.besides = map[uint32]*beside{}
	}
	c.besides[number] = &beside{spec, scheduler.PlanConfig{
		Sampler: sampler, BatchSize: spec.BatchSize, World: make([]int32, spec.World), Ranks: 1,
		Assignment: scheduler.AssignSampler,
	}}
	spec.Embeddings = 0
	c.limits.ReportBytes = max(c.limits.ReportBytes, reportBytes(&spec, s.data.Samples))
	c.Reply(f, door.Opened{Stream: int64(number), Batches: spec.Batches(s.data.Samples)})
	return nil
}

// numberOf returns the number of a spec's stream.
func numberOf(spec scheduler.Spec) uint32 {
	spec.Training = nil
	h := fnv.New32a()
	_, _ = h.Write(asJSON(spec)) // a hash never returns an error
	return besideStreams | h.Sum32()
}

// besideOf returns the stream beside a training that a frame names, or nil.
func (c *conn) besideOf(f door.Frame) *beside {
	kinds := []door.Kind{door.KindGet, door.KindPlan, door.KindReport, door.KindSave}
	if !slices.Contains(kinds, f.Kind) || len(f.Payload) < 4 {
		return nil
	}
	return c.besides[le.Uint32(f.Payload)]
}

func (b *beside) obey(c *conn, f door.Frame) error {
	switch f.Kind {
	case door.KindGet:
		g, err := door.ParseGet(f.Payload, c.numbers)
		c.numbers = g.Leases
		if err == nil {
			err = c.release(g)
		}
		if err != nil {
			return err
		}
		return door.NotReady("a stream beside a training is read from storage")
	case door.KindReport:
		_, err := door.ParseReport(f.Payload)
		return err
	}
	p, err := door.ParsePlace(f.Payload)
	if err == nil {
		err = checkEpoch(p.Epoch)
	}
	if err != nil {
		return err
	}
	if f.Kind == door.KindSave {
		c.Reply(f, door.Saved{})
		return nil
	}
	return c.node.planBeside(c, f.Ticket, b.plan, int(p.Epoch), b.spec.Trainer)
}

// planBeside makes a plan for a single client, one at a time on this rank, and replies with it.
func (n *Node) planBeside(
	c *conn, ticket uint32, cfg scheduler.PlanConfig, epoch, trainer int,
) error {
	if waiting := c.plansBeside.Add(1); waiting > maxWaiting {
		return door.Broken("PLAN, where %d of this connection wait", waiting-1)
	}
	n.beside(nil, "make a plan beside training", func() {
		n.besideMu.Lock()
		reply := door.PlanFrame(ticket, scheduler.NewPlan(cfg, epoch, nil), trainer, "", "")
		n.besideMu.Unlock()
		c.Stream(func(yield func([]byte) bool) {
			reply(yield)
			c.plansBeside.Add(-1) // the plan is in memory until then
		})
	})
	return nil
}
