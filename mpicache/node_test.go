package mpicache

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/door"
	"rankpool/mpicache/fields"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// fakeStorage makes samples up, from goroutines of its own.
type fakeStorage struct {
	mu    sync.Mutex
	reads map[draw.SampleID]int
	bad   map[draw.SampleID]bool
}

func sampleSize(id draw.SampleID) int64 { return 50 + int64(id)%100 }

func sampleBytes(id draw.SampleID) []byte {
	b := make([]byte, sampleSize(id))
	for i := range b {
		b[i] = byte(int(id)*7 + i)
	}
	return b
}

// allReads returns how often any sample was read.
func (f *fakeStorage) allReads() (reads int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.reads {
		reads += n
	}
	return reads
}

func (f *fakeStorage) Demand(uint64) {}

func (f *fakeStorage) Fetch(id draw.SampleID, into []byte, _ uint64, done func(error)) {
	go func() {
		f.mu.Lock()
		f.reads[id]++
		bad := f.bad[id]
		f.mu.Unlock()
		if bad {
			done(fmt.Errorf("sample %d is gone", id))
			return
		}
		copy(into, sampleBytes(id))
		done(nil)
	}()
}

// cluster is some ranks in this process.
type cluster struct {
	t       testing.TB
	nodes   []*Node
	storage *fakeStorage
	signs   []transport.Transport // of the ranks' watches
	dirs    []string
	records []any
	mu      sync.Mutex
	// between, if not nil, is called by trainer 0 before each batch, when all trainers have trained
	// the one before.
	between func(epoch, batch int)
}

// patient is for clusters whose reads are counted: a rank that waits too long for another, as on a
// busy machine, reads samples itself.
func patient(cfg *Config) { cfg.PeerTimeout = time.Minute }

func newCluster(
	t *testing.T, ranks, samples int, capacityBytes int64, edits ...func(*Config),
) *cluster {
	t.Helper()
	return newClusterIn(t, t.TempDir, ranks, samples, capacityBytes, edits...)
}

func newClusterIn(
	t testing.TB, tempDir func() string, ranks, samples int, capacityBytes int64,
	edits ...func(*Config),
) *cluster {
	t.Helper()
	c := &cluster{t: t, signs: transport.NewLocal(ranks), storage: &fakeStorage{
		reads: map[draw.SampleID]int{},
		bad:   map[draw.SampleID]bool{},
	}}
	for _, transport := range transport.NewLocal(ranks) {
		dir := tempDir()
		cfg := Config{
			Transport: transport, Policy: "clairvoyant", PeerTimeout: 300 * time.Millisecond,
			Dir: dir, Log: slog.New(slog.DiscardHandler),
			Watch:     watchOn(c.signs[transport.Rank()], time.Hour, nil),
			SlabBytes: capacityBytes + 1<<20,
			Record: func(r any) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.records = append(c.records, r)
			},
			Data: []DataSet{{
				Name: "train", Samples: samples, Size: sampleSize,
				Label: func(id draw.SampleID) int { return int(id) % 3 }, Storage: c.storage,
				PartitionBytes: slices.Repeat([]int64{capacityBytes}, ranks), WindowBytes: 1 << 19,
			}},
		}
		for _, edit := range edits {
			edit(&cfg)
		}
		n, err := NewNode(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, n)
		c.dirs = append(c.dirs, dir)
	}
	t.Cleanup(c.halt)
	return c
}

// watchOn returns a watch that does not tick.
func watchOn(t transport.Transport, bound time.Duration, lost func(rank int)) *ranks.Watch {
	return ranks.NewWatch(t, ranks.WatchOptions{Bound: bound, Lost: lost})
}

// halt stops nodes that a test leaves open from writing to their folders, which are removed.
func (c *cluster) halt() {
	for _, n := range c.nodes {
		n.halt()
		n.ticking.Wait()
	}
}

func (c *cluster) close() {
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() {
			if err := n.Close(); err != nil {
				c.t.Errorf("closing: %v", err)
			}
		})
	}
	wg.Wait()
}

// trainer is a training process that checks every byte it gets.
type trainer struct {
	*door.Client
	rank, world int
	slab        []byte
	tally       tally
	between     func(epoch, batch int)
	training    protocol.Training // what it sends when it opens the data set
	from        int               // the batch that it begins its next epoch at
	state       string            // the file with what its newest plan was made from
	job         string            // of the training
	seed        int64             // added to that of a training without a job name
	epochs      int               // of the training, as it says; 0: unknown
	embeddings  int               // numbers that it reports of a sample, if the system needs them
	stream      uint32            // the number that the rank gave it
}

func (c *cluster) trainer(rank, world int) (*trainer, error) {
	client, err := dial(c.dirs[rank%len(c.dirs)],
		door.NewHello(uint32(rank), uint32(world), uint64(rank)))
	if err != nil {
		return nil, err
	}
	welcome, err := client.Welcome()
	if err != nil {
		return nil, err
	}
	slab, err := unix.Mmap(client.SlabFD, 0, int(welcome.SlabBytes), unix.PROT_READ, unix.MAP_SHARED)
	return &trainer{Client: client, rank: rank, world: world, slab: slab}, err
}

// mustTrainer connects a trainer; it fails the test if it cannot.
func (c *cluster) mustTrainer(t testing.TB, rank, world int) *trainer {
	t.Helper()
	tr, err := c.trainer(rank, world)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// mustOpen connects a trainer that opens the data set; it fails the test if it cannot.
func (c *cluster) mustOpen(
	t testing.TB, rank, world int, sampler string, batchSize int,
) *trainer {
	t.Helper()
	tr := c.mustTrainer(t, rank, world)
	if err := tr.open(sampler, batchSize); err != nil {
		t.Fatal(err)
	}
	return tr
}

func (tr *trainer) close() error { return errors.Join(unix.Munmap(tr.slab), tr.Close()) }

func (tr *trainer) open(sampler string, batchSize int) error {
	spec := protocol.Spec{
		Data: "train", Job: tr.job, Sampler: sampler, Seed: 1 + tr.seed, BatchSize: batchSize,
		Trainer: tr.rank, World: tr.world, Training: &tr.training, Epochs: tr.epochs,
		Evaluates: true, Embeddings: 2,
	}
	text, err := json.Marshal(spec)
	if err == nil {
		text, err = tr.Call(door.KindOpen, text)
	}
	var opened door.Opened
	if err == nil {
		err = json.Unmarshal(text, &opened)
	}
	tr.stream, tr.embeddings = uint32(opened.Stream), opened.Embeddings
	return err
}

func u32s(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = le.AppendUint32(b, x)
	}
	return b
}

// planBeside requests the first plan, and sends the error, which may be nil, when it is answered.
func (tr *trainer) planBeside() <-chan error {
	answer := make(chan error, 1)
	go func() {
		_, err := tr.plan(0)
		answer <- err
	}()
	return answer
}

// plan returns the trainer's ids by batch.
func (tr *trainer) plan(epoch int) ([][]uint32, error) {
	p, err := tr.Call(door.KindPlan, u32s(tr.stream, uint32(epoch), uint32(tr.from)))
	if err != nil {
		return nil, err
	}
	tr.from = 0
	c := fields.Reader{Rest: p}
	c.U32()
	batches := c.U32()
	c.U32()
	flags := c.U32()
	counts := fields.U32s[uint32](&c, nil, batches)
	var parts [][]uint32
	draws := uint32(0)
	for _, n := range counts {
		parts = append(parts, fields.U32s[uint32](&c, nil, n))
		draws += n
	}
	for _, column := range []uint32{door.PlanWeights, door.PlanRepeats} {
		if flags&column != 0 {
			c.List(draws)
		}
	}
	if flags&door.PlanSource != 0 {
		source := protocol.Digest(hex.EncodeToString(c.Bytes(16)))
		planned := append(tr.training.Planned, protocol.PlanSource{Epoch: epoch, Scores: source})
		tr.training.Planned, tr.state = planned[max(0, len(planned)-2):], string(c.Rest)
	}
	if c.Short {
		return nil, errors.New("a plan that is too short")
	}
	return parts, nil
}

// get requests one batch, checks it, and returns its ids.
func (tr *trainer) get(
	epoch, batch int, leases ...uint32,
) (ids []uint32, lease uint32, sources []byte, err error) {
	head := []uint32{tr.stream, uint32(epoch), uint32(batch), uint32(len(leases))}
	p := u32s(append(head, leases...)...)
	p, err = tr.Call(door.KindGet, tr.tally.Append(p))
	if err != nil {
		return nil, 0, nil, err
	}
	c := fields.Reader{Rest: p}
	lease = c.U32()
	n := c.U32()
	ids = fields.U32s[uint32](&c, nil, n)
	labels := fields.U32s[uint32](&c, nil, n)
	places := make([]uint64, 2*n) // where the samples begin, and where they end
	for i := range places {
		places[i] = c.U64()
	}
	sources = append(sources, c.Bytes(int(n))...)
	for i, id := range ids {
		sid := draw.SampleID(id)
		counter := counterOf(stager.Source(sources[i]))
		tr.tally.Counts[counter]++
		if counter == stats.FallbackReads && sources[i] != byte(stager.FromFallback) {
			continue
		}
		if labels[i] != id%3 || !bytes.Equal(tr.slab[places[i]:places[int(n)+i]], sampleBytes(sid)) {
			return nil, 0, nil, fmt.Errorf("sample %d: other bytes or label", id)
		}
	}
	if c.Short {
		return nil, 0, nil, errors.New("a batch that is too short")
	}
	return ids, lease, sources, nil
}

// counterOf returns the counter for a sample from a source.
func counterOf(source stager.Source) stats.Counter {
	switch source {
	case stager.FromLocal:
		return stats.HitsLocal
	case stager.FromPeer:
		return stats.HitsRemote
	case stager.FromStorage:
		return stats.StorageReads
	default:
		return stats.FallbackReads
	}
}

type (
	counts = stats.Counts
	tally  = door.Tally
)

// thisFamily is the family of the trainers of this process.
var thisFamily = door.NewHello(0, 0, 0).Family

// dial connects to the door of the rank with this folder.
func dial(dir string, h door.Hello) (*door.Client, error) {
	return door.Dial(filepath.Join(dir, doorName), h, 20*time.Second)
}

func hello(trainer, world uint32, worker, process, family uint64) door.Hello {
	return door.Hello{
		Version: door.Version, Trainer: trainer, World: world, Worker: worker, Process: process,
		Family: family,
	}
}

func counted(epoch uint32, c counts) tally { return tally{Epoch: epoch, Counts: c} }

// epoch trains one epoch, in step with the others as with an all-reduce, and returns this trainer's
// part of each global batch.
func (tr *trainer) epoch(epoch int, step *barrier) ([][]uint32, error) {
	parts, err := tr.plan(epoch)
	if err != nil {
		return nil, err
	}
	tr.tally = tally{Stream: tr.stream, Epoch: uint32(epoch)}
	var leases []uint32
	for b, want := range parts {
		if tr.between != nil {
			tr.between(epoch, b)
		}
		ids, lease, _, err := tr.get(epoch, b, leases...)
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", b, err)
		}
		if fmt.Sprint(ids) != fmt.Sprint(want) {
			return nil, fmt.Errorf("batch %d is %v, in the plan %v", b, ids, want)
		}
		leases = []uint32{lease}
		report := u32s(tr.stream, uint32(epoch), uint32(b), uint32(len(ids)))
		for _, id := range ids {
			report = append(report, u32s(0x3f000000+id<<8)...) // a loss that grows with the id
		}
		if err := tr.Send(door.KindReport, report); err != nil {
			return nil, err
		}
		step.wait()
	}
	p := u32s(append([]uint32{uint32(len(leases))}, leases...)...)
	return parts, tr.Send(door.KindRelease, tr.tally.Append(p))
}

// barrier lets n goroutines continue together.
type barrier struct {
	mu   sync.Mutex
	cond *sync.Cond
	n    int
	in   int
	turn int
}

func newBarrier(n int) *barrier {
	b := &barrier{n: n}
	b.cond = sync.NewCond(&b.mu)
	return b
}

func (b *barrier) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	turn := b.turn
	if b.in++; b.in == b.n {
		b.in, b.turn = 0, b.turn+1
		b.cond.Broadcast()
		return
	}
	for turn == b.turn {
		b.cond.Wait()
	}
}

// train runs world trainers for some epochs and returns the global batches of each epoch, each as a
// sorted text.
func (c *cluster) train(world, batchSize, epochs int, sampler string) []string {
	c.t.Helper()
	stream := make([][][]uint32, epochs)
	var mu sync.Mutex
	var wg sync.WaitGroup
	step := newBarrier(world)
	for rank := range world {
		wg.Go(func() {
			tr, err := c.trainer(rank, world)
			if err == nil {
				err = tr.open(sampler, batchSize)
			}
			if err == nil && rank == 0 {
				tr.between = c.between
			}
			for e := 0; e < epochs && err == nil; e++ {
				var parts [][]uint32
				parts, err = tr.epoch(e, step)
				mu.Lock()
				for b, p := range parts {
					for len(stream[e]) <= b {
						stream[e] = append(stream[e], nil)
					}
					stream[e][b] = append(stream[e][b], p...)
				}
				mu.Unlock()
			}
			if err = errors.Join(err, tr.close()); err != nil {
				c.t.Errorf("trainer %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	var out []string
	for _, epoch := range stream {
		text := ""
		for _, batch := range epoch {
			text += fmt.Sprintln(sorted(batch))
		}
		out = append(out, text)
	}
	return out
}

// coordinating calls f with the coordinator of the training without a job name.
func (n *Node) coordinating(f func(c *protocol.Coordinator)) {
	set := n.rank.Sets[0]
	set.Store().Locked(func() { f(set.Find("").Coordinator()) })
}

var le = binary.LittleEndian
