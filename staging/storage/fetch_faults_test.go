package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
)

// A roughStorage is a storage in memory with random delays and faults. It records the most requests
// and bytes at a time, and panics if a closed file is read. It is used in a synctest bubble.
type roughStorage struct {
	m       *dataset.Manifest
	sizes   map[string]int64
	targets map[string]int

	faulty, stuck float64                         // shares of operations
	delay         func(path string) time.Duration // of an operation; nil: a millisecond

	mu        sync.Mutex
	random    *rand.Rand
	requests  map[string]int // under way, by path
	most      int            // requests at a time
	mostBytes int64
	mostOn    map[int]int // requests at a time, by target
	bytes     int64
	opens     []string
	reads     int
	opened    int // files, now
	forgotten int64
}

// roughByte is the byte at a place of a file.
func roughByte(path string, at int64) byte { return byte(at*31+at>>8) ^ path[len(path)-1] }

// sample returns the bytes of a sample.
func (s *roughStorage) sample(id draw.SampleID) []byte {
	data := make([]byte, s.m.Size(id))
	for i := range data {
		data[i] = roughByte(s.m.Path(id), s.m.Offset(id)+int64(i))
	}
	return data
}

// rough returns a storage of shards with perShard samples each, and of as many whole files as
// shards; shard and file i lie on target i mod 3, the last ones on none.
func rough(seed uint64, shards, perShard, maxBytes int) *roughStorage {
	s := &roughStorage{
		sizes:   map[string]int64{},
		targets: map[string]int{}, random: rand.New(rand.NewPCG(seed, 1)), requests: map[string]int{},
		mostOn: map[int]int{},
	}
	var samples []dataset.Sample
	for i := range shards {
		end := int64(0)
		for range perShard {
			size := s.random.Int64N(int64(maxBytes))
			if s.random.IntN(9) == 0 {
				end += maxGapBytes // too far to coalesce
			}
			end += s.random.Int64N(600)
			samples = append(samples, dataset.Sample{
				Path: fmt.Sprint("shard", i), Format: dataset.FormatPart, Offset: end, Size: size, ModTime: 7,
			})
			end += size
		}
		s.sizes[fmt.Sprint("/r/shard", i)] = end
	}
	for i := range shards {
		size := s.random.Int64N(int64(maxBytes))
		samples = append(samples, dataset.Sample{Path: fmt.Sprint("file", i), Size: size, ModTime: 7})
		s.sizes[fmt.Sprint("/r/file", i)] = size
	}
	s.m = built("/r", samples...)
	for i := range shards {
		target := i % 3
		if i == shards-1 {
			target = -1
		}
		s.targets[fmt.Sprint("/r/shard", i)], s.targets[fmt.Sprint("/r/file", i)] = target, target
	}
	return s
}

// begin begins an operation of n bytes, and returns a function that ends it, and its fault.
func (s *roughStorage) begin(path string, n int64) (end func(), fault error) {
	s.mu.Lock()
	s.requests[path]++
	s.bytes += n
	total, onTarget := 0, 0
	for other, requests := range s.requests {
		total += requests
		if s.targets[other] == s.targets[path] {
			onTarget += requests
		}
	}
	s.most, s.mostBytes = max(s.most, total), max(s.mostBytes, s.bytes)
	s.mostOn[s.targets[path]] = max(s.mostOn[s.targets[path]], onTarget)
	pause := time.Millisecond
	if s.delay != nil {
		pause = s.delay(path)
	}
	if s.random.Float64() < s.stuck {
		pause += time.Duration(s.random.IntN(300)) * time.Second
	}
	if s.random.Float64() < s.faulty {
		fault = []error{unix.EIO, unix.ESTALE, unix.EACCES, unix.EAGAIN}[s.random.IntN(4)]
	}
	s.mu.Unlock()
	time.Sleep(pause)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests[path]--
		s.bytes -= n
	}, fault
}

func (s *roughStorage) Open(path string) (File, error) {
	end, fault := s.begin(path, 0)
	defer end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens = append(s.opens, path)
	if fault != nil {
		return nil, fault
	}
	s.opened++
	return &roughFile{s: s, path: path}, nil
}

type roughFile struct {
	s    *roughStorage
	path string
	user sync.RWMutex // Close must be alone, and the last
}

// ReadVector writes only after its delay, and then all at once, as a system call that was stuck
// does.
func (f *roughFile) ReadVector(into [][]byte, off int64) (n int, err error) {
	if !f.user.TryRLock() {
		panic("a closed file is read")
	}
	defer f.user.RUnlock()
	for _, p := range into {
		n += len(p)
	}
	end, fault := f.s.begin(f.path, int64(n))
	defer end()
	f.s.mu.Lock()
	f.s.reads++
	if fault == nil && f.s.random.Float64() < f.s.faulty {
		n = f.s.random.IntN(n + 1) // a short read
	}
	f.s.mu.Unlock()
	if fault != nil {
		n /= 2 // what the caller gets is undefined
	}
	got := 0
	for _, p := range into {
		for i := range p {
			if at := off + int64(got); got < n && at < f.s.sizes[f.path] {
				p[i] = roughByte(f.path, at)
				got++
			}
		}
	}
	if fault != nil {
		return 0, fault
	}
	if got == 0 {
		return 0, io.EOF
	}
	return got, nil
}

func (f *roughFile) Stat() (int64, int64, error) {
	end, fault := f.s.begin(f.path, 0)
	defer end()
	return f.s.sizes[f.path], 7, fault
}

func (f *roughFile) Forget(_, length int64) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.s.forgotten += length
}

func (f *roughFile) Close() error {
	if !f.user.TryLock() { // for ever
		panic("a file is closed that is read, or closed already")
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.s.opened--
	return nil
}

// A roughReader requests samples of a rough storage from a Fetcher. When done is called it checks
// the sample and overwrites its memory; at the end it checks that nothing has changed that memory.
type roughReader struct {
	*Fetcher
	s       *roughStorage
	mu      sync.Mutex
	slots   [][]byte
	done    []int
	errs    []error
	order   []draw.SampleID
	broken  []string
	pending sync.WaitGroup
}

const poison = 0xA5

func newRoughReader(s *roughStorage, opt FetchOptions) *roughReader {
	opt.Storage = s
	opt.TargetOf = func(id draw.SampleID) int { return s.targets[s.m.Path(id)] }
	return &roughReader{Fetcher: NewFetcher(s.m, opt), s: s}
}

func (r *roughReader) ask(id draw.SampleID, need uint64) {
	r.mu.Lock()
	into, place := make([]byte, r.s.m.Size(id)), len(r.slots)
	r.slots, r.done = append(r.slots, into), append(r.done, 0)
	r.mu.Unlock()
	r.pending.Add(1)
	r.Fetch(id, into, need, func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.done[place]++; r.done[place] > 1 {
			r.broken = append(r.broken, fmt.Sprintf("sample %d is done twice", id))
			return
		}
		sample := (*SampleError)(nil)
		switch {
		case err == nil && !bytes.Equal(into, r.s.sample(id)):
			r.broken = append(r.broken, fmt.Sprintf("sample %d has wrong bytes", id))
		case err != nil && !errors.Is(err, ErrClosed) && !errors.As(err, &sample):
			r.broken = append(r.broken, fmt.Sprintf("sample %d: %v", id, err))
		}
		for i := range into {
			into[i] = poison
		}
		r.errs, r.order = append(r.errs, err), append(r.order, id)
		r.pending.Done()
	})
}

// underWay returns how many requests are in flight.
func (r *roughReader) underWay() int {
	r.Fetcher.mu.Lock()
	defer r.Fetcher.mu.Unlock()
	return len(r.flights.all)
}

// end waits for all reads, closes the Fetcher, waits until what is late has ended, and returns what
// is wrong.
func (r *roughReader) end() string {
	r.pending.Wait()
	r.Close()
	time.Sleep(time.Hour)
	synctest.Wait()
	for place, into := range r.slots {
		if r.done[place] != 1 {
			r.broken = append(r.broken, fmt.Sprintf("done was called %d times", r.done[place]))
		}
		if bytes.Count(into, []byte{poison}) != len(into) {
			r.broken = append(r.broken, "memory that was given back has been written to")
		}
	}
	if flights, shards := r.underWay(), len(r.queues.shards); flights != 0 || shards != 0 ||
		r.s.opened != 0 {
		r.broken = append(r.broken, fmt.Sprintf("at the end %d requests, %d shards, %d files", flights,
			shards, r.s.opened))
	}
	return strings.Join(r.broken, "; ")
}

// TestFetchRandomFaults checks what must hold whatever storage does: one call of done per Fetch,
// right bytes or an error, nothing written after that, and the bounds on requests and bytes.
func TestFetchRandomFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := rough(rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 6).Draw(rt, "shards"),
			rapid.IntRange(1, 60).Draw(rt, "samples"), 3000)
		s.faulty = rapid.SampledFrom([]float64{0, 0.01, 0.2}).Draw(rt, "faulty")
		s.stuck = rapid.SampledFrom([]float64{0, 0.003, 0.03}).Draw(rt, "stuck")
		opt := FetchOptions{
			Concurrency:       rapid.IntRange(0, 12).Draw(rt, "concurrency"),
			Bytes:             rapid.SampledFrom([]int64{0, 1, 10_000}).Draw(rt, "bytes"),
			TargetConcurrency: rapid.IntRange(1, 8).Draw(rt, "on a target"),
			CoalesceBytes:     rapid.SampledFrom([]int64{-1, 0, 5000}).Draw(rt, "coalesce"),
			Limit: rapid.SampledFrom([]*RateLimit{nil, NewRateLimit(1e6, 500)}).Draw(
				rt, "limit"),
		}
		early := rapid.Bool().Draw(rt, "closed early")
		asks := rapid.IntRange(0, 500).Draw(rt, "asks")
		wrong := ""
		synctest.Test(t, func(*testing.T) {
			r := newRoughReader(s, opt)
			random := rand.New(rand.NewPCG(5, 6))
			for i := range asks {
				r.ask(draw.SampleID(random.IntN(s.m.Len())), uint64(random.IntN(50)))
				switch random.IntN(20) {
				case 0:
					r.Demand(uint64(i / 20))
				case 1:
					time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
				}
			}
			if early {
				r.Close()
			}
			wrong = r.end()
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
		if c := opt.Concurrency; c > 0 && s.most > c+max(1, c/8) {
			rt.Errorf("%d requests at a time, the bound is %d", s.most, c)
		}
		for target, most := range s.mostOn {
			if target >= 0 && most > opt.TargetConcurrency+1 {
				rt.Errorf("%d requests at a time on target %d, the bound is %d", most, target,
					opt.TargetConcurrency)
			}
		}
		if opt.Bytes > 0 && s.mostBytes > max(opt.Bytes, 3000) {
			rt.Errorf("%d bytes at a time, the bound is %d", s.mostBytes, opt.Bytes)
		}
	})
}

// TestStallReport makes storage hang: lines at intervals name the file and the target, not one line
// for each request.
func TestStallReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rough(1, 2, 10, 2000)
		s.delay = func(path string) time.Duration {
			if path == "/r/shard0" {
				return 70 * time.Second
			}
			return time.Millisecond
		}
		var lines []string
		r := newRoughReader(s, FetchOptions{
			CoalesceBytes: -1,
			Log:           func(msg string) { lines = append(lines, msg) },
		})
		for id := range draw.SampleID(20) {
			r.ask(id, 1)
		}
		if wrong := r.end(); wrong != "" {
			t.Error(wrong)
		}
		want := "staging: reading /r/shard0 on storage target 0 has not ended after 30s, nor have 7 " +
			"others; storage may be stuck"
		if len(lines) < 2 || lines[0] != want || len(lines) > 20 {
			t.Errorf("%d lines: %q", len(lines), lines)
		}
		if got := r.Stats().Stalls; got != 10 {
			t.Errorf("%d stalls", got)
		}
	})
}

// TestTargets makes one target slow: the others' reads continue, and it never gets more than its
// share.
func TestTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rough(1, 4, 50, 2000)
		s.delay = func(path string) time.Duration {
			if s.targets[path] == 0 {
				return time.Second
			}
			return time.Millisecond
		}
		r := newRoughReader(s, FetchOptions{Concurrency: 16, TargetConcurrency: 3, CoalesceBytes: -1})
		for id := range draw.SampleID(200) {
			r.ask(id, 1)
		}
		time.Sleep(2500 * time.Millisecond)
		r.mu.Lock()
		if got := len(r.order); got < 150 {
			t.Errorf("%d samples were read while one target was slow", got)
		}
		r.mu.Unlock()
		if wrong := r.end(); wrong != "" || s.mostOn[0] > 4 || s.mostOn[1] > 4 || s.most < 9 {
			t.Errorf("%s; %v requests at a time on each target, %d in all", wrong, s.mostOn, s.most)
		}
	})
}

// TestSpread requests all samples with equal need: reads that begin together go to different
// targets.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rough(1, 7, 20, 2000)
		r := newRoughReader(s, FetchOptions{Concurrency: 3, CoalesceBytes: -1})
		for id := range draw.SampleID(3) {
			r.ask(120+id, 0) // of the shard on no target; they hold the others up
		}
		for id := range draw.SampleID(120) {
			r.ask(id, 1)
		}
		if wrong := r.end(); wrong != "" {
			t.Error(wrong)
		}
		on := map[int]bool{}
		for _, path := range s.opens[1:4] {
			on[s.targets[path]] = true
		}
		if !on[0] || !on[1] || !on[2] {
			t.Errorf("the first requests were for %q", s.opens[1:4])
		}
	})
}

// TestCoalesced requests a shard's samples in any order: they are read by few requests from one
// open file.
func TestCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rough(1, 1, 200, 2000)
		r := newRoughReader(s, FetchOptions{Concurrency: 1})
		r.ask(200, 0) // a file holds the reader up
		for _, id := range rand.New(rand.NewPCG(1, 1)).Perm(200) {
			r.ask(draw.SampleID(id), 5)
		}
		r.pending.Wait()
		synctest.Wait()
		stats := r.Stats()
		if stats.Coalesced < 150 || s.reads > 60 || len(s.opens) != 2 || stats.Opens != 2 {
			t.Errorf("%+v; %d reads, %d opens", stats, s.reads, len(s.opens))
		}
		if wrong := r.end(); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestDemand checks that reads ahead use all but an eighth of the requests, so that what training
// waits for is read at once.
func TestDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rough(1, 3, 200, 2000)
		s.delay = func(string) time.Duration { return time.Second }
		r := newRoughReader(s, FetchOptions{Concurrency: 16, TargetConcurrency: 16, CoalesceBytes: -1})
		r.Demand(9)
		for id := range draw.SampleID(100) {
			r.ask(id, 10)
		}
		if got := r.underWay(); got != 14 {
			t.Errorf("%d requests are ahead of their use, of 16", got)
		}
		r.ask(300, 9)
		if got := r.underWay(); got != 15 {
			t.Errorf("%d requests with one that training waits for", got)
		}
		r.Demand(10) // now training waits for all
		if got := r.underWay(); got != 16 {
			t.Errorf("%d requests when all are waited for", got)
		}
		r.Demand(3) // less than before: nothing changes
		if wrong := r.end(); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestSharedLimit makes two Fetchers share a limit.
func TestSharedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, began := NewRateLimit(100_000, 0), time.Now()
		var readers []*roughReader
		bytes := int64(0)
		for seed := range uint64(2) {
			r := newRoughReader(rough(seed, 3, 100, 5000), FetchOptions{Limit: limit})
			for id := range r.s.m.Len() {
				bytes += r.s.m.Size(draw.SampleID(id))
				r.ask(draw.SampleID(id), 1)
			}
			readers = append(readers, r)
		}
		for _, r := range readers {
			r.pending.Wait()
		}
		if took, want := time.Since(began).Seconds(),
			float64(bytes)/100_000; took < 0.9*want || took > 1.3*want {
			t.Errorf("%d bytes took %.2f s, want %.2f s", bytes, took, want)
		}
		for _, r := range readers {
			if wrong := r.end(); wrong != "" {
				t.Error(wrong)
			}
		}
	})
}
