package mpicache

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/mpicache/training"
	"rankpool/scheduler/protocol"
)

// script reads what a hostile client does from the fuzzer's bytes; past their end it reads zeros.
type script struct{ b []byte }

func (s *script) byte() byte {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

// number returns a value for a field: usually a small one, else one near a limit, or any.
func (s *script) number() uint32 {
	limits := []uint32{
		12, 13, 48, 1 << 8, 1<<16 - 1, 1 << 16, 1 << 20, training.MaxEpoch,
		training.MaxEpoch + 1, 1 << 31,
		1<<31 + 1, math.MaxUint32 - 1, math.MaxUint32,
	}
	switch k := int(s.byte()); {
	case k < 90:
		return 0
	case k < 200:
		return uint32(k-90) / 10
	case k < 240:
		return limits[k%len(limits)]
	default:
		return le.Uint32([]byte{s.byte(), s.byte(), s.byte(), s.byte()})
	}
}

func (s *script) numbers(n int) []byte {
	var b []byte
	for range n {
		b = le.AppendUint32(b, s.number())
	}
	return b
}

// frame returns a frame of any kind, usually with the fields of that kind, some of them false.
func (s *script) frame(trainer uint32) (frame []byte, whole bool) {
	kinds := []door.Kind{
		door.KindOpen, door.KindOpen, door.KindOpen, door.KindGet, door.KindReport,
		door.KindReport, door.KindPlan, door.KindPlan, door.KindRelease, door.KindMetric,
		door.KindSave, door.KindStatus, door.KindHello,
	}
	kind := kinds[int(s.byte())%len(kinds)]
	var p []byte
	switch kind {
	case door.KindGet:
		p = s.leases(s.numbers(3))
	case door.KindRelease:
		p = s.leases(nil)
	case door.KindReport:
		p = s.counted(s.numbers(3), []int{4, 4, 4, 0, 1, 9}[s.byte()%6])
		if s.byte()%4 == 0 { // with embeddings
			p = s.counted(p, int(s.byte())%9)
		}
	case door.KindPlan, door.KindSave:
		p = s.numbers(3)
	case door.KindHello:
		p = append([]byte("rankpool"), s.numbers(9)...)
	case door.KindOpen:
		p = s.spec(trainer)
	case door.KindMetric:
		p = fmt.Appendf(nil, `{"stream":%d,"epoch":%d,"name":"n%d","value":%d}`, s.number(), s.number(), s.byte(), int8(s.byte()))
	}
	b := door.AppendFrame(nil, kind, s.number(), p)
	switch s.byte() {
	case 1: // a false length
		le.PutUint32(b, s.number())
	case 2: // a frame that is cut off
		b = b[:int(s.byte())%(len(b)+1)]
	case 3: // any byte
		b[int(s.byte())%len(b)] = s.byte()
	default:
		return b, true
	}
	return b, false
}

// counted appends a count, which may be wrong, and some numbers.
func (s *script) counted(b []byte, n int) []byte {
	count := uint32(n)
	if s.byte() == 1 {
		count = s.number()
	}
	return append(le.AppendUint32(b, count), s.numbers(n)...)
}

func (s *script) leases(b []byte) []byte {
	return append(s.counted(b, int(s.byte())%3), s.numbers(16)...)
}

// spec returns the training's spec, possibly with some fields changed.
func (s *script) spec(trainer uint32) []byte {
	samplers := []string{"sequential", "torch", "subset", "", "none"}
	jobs := []string{"a", "b", sameNumber[0], sameNumber[1], "../a"}
	spec := protocol.Spec{
		Data: "train", Sampler: "pads", Seed: 1, BatchSize: 4, World: 2,
		Trainer: int(trainer),
	}
	for k := s.byte(); k >= 128; k = s.byte() {
		switch k % 9 {
		case 0:
			spec.Sampler = samplers[int(s.byte())%len(samplers)]
		case 1:
			spec.BatchSize = int(int32(s.number()))
		case 2:
			spec.World = int(int32(s.number()))
		case 3:
			spec.Seed = int64(s.number())
		case 4:
			spec.DropLast = true
		case 5:
			spec.Identity = "x"
		case 6:
			spec.Trainer = int(int32(s.number()))
		case 7: // a training of its own, with this world
			spec.Job = jobs[int(s.byte())%len(jobs)]
			spec.Training = s.training()
		default:
			spec.SamplerDropLast = true
		}
	}
	text, _ := json.Marshal(spec) // it is text and numbers
	return text
}

// training returns a hostile client's description of its training.
func (s *script) training() *protocol.Training {
	t := &protocol.Training{Life: uint64(s.byte()), Turn: uint32(s.byte())}
	if s.byte()%2 == 0 {
		t.Checkpoint = &protocol.Checkpoint{Epoch: int(int32(s.number())), Batch: int(int32(s.number()))}
	}
	for range s.byte() % 3 {
		t.Planned = append(t.Planned, protocol.PlanSource{Epoch: int(int32(s.number())), Scores: "x"})
	}
	return t
}

// hello returns the HELLO of a hostile client in a training of two: a process of its own, a child
// of a trainer, or a launcher. It usually connects to the rank of its trainer.
func (s *script) hello() (rank int, h door.Hello) {
	who := s.byte()
	h = hello(uint32(who&1), 2, uint64(who&15), 5, 5)
	rank = int(who & 1)
	switch who >> 1 & 7 {
	case 0:
		h.Trainer, h.World = door.ControlTrainer, 0
	case 1, 2:
		h.Family = thisFamily
	case 3:
		rank = 1 - rank
	}
	return rank, h
}

// hostiles are the connections of a script.
type hostiles struct {
	t     *testing.T
	dirs  []string
	opens bool // they open the data set first
	conns map[door.Hello]*net.UnixConn
}

// say sends frames to a rank, on who's connection, and returns when they have been handled, or the
// client has been disconnected. An incomplete frame is the connection's last.
func (h *hostiles) say(rank int, who door.Hello, frames []byte, whole bool) {
	key := who
	key.Worker |= uint64(rank) << 32
	c := h.conns[key]
	if c == nil {
		dialled, err := net.Dial("unix", filepath.Join(h.dirs[rank], doorName))
		if err != nil {
			h.t.Fatal(err)
		}
		c = dialled.(*net.UnixConn)
		h.conns[key] = c
		begin := door.AppendHello(nil, 0, who)
		if who.Trainer != door.ControlTrainer && h.opens {
			text, _ := json.Marshal(
				protocol.Spec{
					Data: "train", Sampler: "pads", Seed: 1, BatchSize: 4, World: 2,
					Trainer: int(who.Trainer),
				})
			begin = door.AppendFrame(begin, door.KindOpen, 1, text)
		}
		frames = append(begin, frames...)
	}
	if whole {
		frames = append(frames, door.AppendFrame(nil, door.KindStatus, math.MaxUint32, nil)...)
	}
	_, err := c.Write(frames)
	if err == nil && !whole {
		err = c.CloseWrite()
	}
	var buf []byte
	for err == nil {
		var f door.Frame
		f, err = door.ReadReply(c, &buf)
		if f.Kind == door.KindStatus.Reply() && f.Ticket == math.MaxUint32 {
			return
		}
	}
	_ = c.Close() // the rank no longer serves it
	delete(h.conns, key)
}

func (h *hostiles) end() {
	for _, c := range h.conns {
		_ = c.Close() // it may have been left
	}
}

// addScripts gives the fuzzer long scripts to begin with.
func addScripts(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		b := make([]byte, 200+rng.IntN(1800))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
}

// FuzzDoor makes hostile clients send anything to two ranks, at any moment of a training. No rank
// panics, and the training gets the stream that it gets without them.
func FuzzDoor(f *testing.F) {
	addScripts(f)
	const epochs, samples = 2, 48
	want := func(t *testing.T) []string {
		cl := newCluster(t, 2, samples, 1500)
		defer cl.close()
		return cl.train(2, 4, epochs, "pads")
	}
	var once sync.Once
	var stream []string
	f.Fuzz(func(t *testing.T, raw []byte) {
		once.Do(func() { stream = want(t) })
		s := &script{raw}
		cl := newCluster(t, 2, samples, 1500)
		h := &hostiles{t: t, dirs: cl.dirs, conns: map[door.Hello]*net.UnixConn{}}
		cl.between = func(int, int) {
			for range s.byte() % 8 {
				rank, who := s.hello()
				h.opens = s.byte() > 50
				frame, whole := s.frame(who.Trainer)
				h.say(rank, who, frame, whole)
			}
		}
		got := cl.train(2, 4, epochs, "pads")
		h.end()
		cl.close()
		if !slices.Equal(got, stream) {
			t.Errorf("the stream of the training changed:\n%v\n%v", got, stream)
		}
	})
}

// FuzzTrainers makes the trainers of two ranks themselves send anything: no rank panics, and all
// end.
func FuzzTrainers(f *testing.F) {
	addScripts(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := &script{raw}
		cl := newCluster(t, 2, 48, 1500)
		h := &hostiles{t: t, dirs: cl.dirs, conns: map[door.Hello]*net.UnixConn{}}
		samplers := []string{"pads", "torch", "subset", "sequential"}
		sampler := samplers[int(s.byte())%len(samplers)]
		for frames := 0; len(s.b) > 0 && frames < 100; frames++ {
			rank := int(s.byte()) % 2
			who := hello(uint32(rank), 2, 1, thisFamily, thisFamily)
			if s.byte()%8 == 0 {
				text, _ := json.Marshal(protocol.Spec{
					Data: "train", Sampler: sampler, Seed: 1, BatchSize: 4, World: 2, Trainer: rank,
				})
				h.say(rank, who, door.AppendFrame(nil, door.KindOpen, 1, text), true)
			}
			frame, whole := s.frame(who.Trainer)
			h.say(rank, who, frame, whole)
		}
		h.end()
		cl.close()
	})
}
