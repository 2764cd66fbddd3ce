package mpicache

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rankpool/mpicache/stats"
	"rankpool/scheduler"
)

// goldenFrames reads the frames that the Python client's tests read too.
func goldenFrames(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("../docs/wire/frames.txt")
	if err != nil {
		t.Fatal(err)
	}
	frames := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || name == "#" {
			continue
		}
		if frames[name], err = hex.DecodeString(digits); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return frames
}

func goldenPayload(t *testing.T, name string) frame {
	t.Helper()
	raw, ok := goldenFrames(t)[name]
	if !ok {
		t.Fatalf("there is no golden frame %q", name)
	}
	var buf []byte
	f, err := readFrame(bytes.NewReader(raw), &buf,
		func(Kind) (int, bool) { return maxReplyBytes, true })
	if err != nil || len(f.payload) != len(raw)-frameHeadBytes {
		t.Fatalf("%s: %d bytes of payload, %v", name, len(f.payload), err)
	}
	return f
}

var goldenHello = helloFrame{2, 2, 4, 0x0123456789abcdef, 0x1111111111111111, 0x2222222222222222}

var goldenTally = tally{
	stream: 1, epoch: 3, counts: counts{
		stats.HitsLocal: 60, stats.HitsRemote: 2, stats.StorageReads: 1, stats.FallbackReads: 1,
		stats.StorageBytes: 4096, stats.FallbackBytes: 512, stats.StallSeconds: 1500,
	},
}

func TestParseGolden(t *testing.T) {
	h, err := parseHello(goldenPayload(t, "hello").payload)
	if err != nil || h != goldenHello {
		t.Errorf("hello: %+v, %v", h, err)
	}
	g, err := parseGet(goldenPayload(t, "get").payload, nil)
	if want := (getFrame{1, 3, 9, []uint32{11, 12}, goldenTally}); err != nil ||
		!reflect.DeepEqual(g, want) {
		t.Errorf("get: %+v, %v", g, err)
	}
	g, err = parseRelease(goldenPayload(t, "release").payload, nil)
	if want := (getFrame{leases: []uint32{13}, tally: goldenTally}); err != nil ||
		!reflect.DeepEqual(g, want) {
		t.Errorf("release: %+v, %v", g, err)
	}
	r, err := parseReport(goldenPayload(t, "report").payload)
	if err != nil || r.stream != 1 || r.epoch != 3 || r.batch != 9 || len(r.losses) != 3 ||
		r.losses[0] != 0.5 ||
		!math.IsNaN(float64(r.losses[1])) || r.losses[2] != 2 {
		t.Errorf("report: %+v, %v", r, err)
	}
	r, err = parseReport(goldenPayload(t, "report_embedded").payload)
	if want := []float32{1.5, -2, 0, 0.25, 4, 8}; err != nil || len(r.losses) != 3 ||
		r.dimensions != 2 || !slices.Equal(r.embeddings, want) {
		t.Errorf("report with embeddings: %+v, %v", r, err)
	}
	w, err := parseWarm(goldenPayload(t, "warm").payload)
	if want := (warmFrame{1, []scheduler.SampleID{4, 0, 7}}); err != nil ||
		!reflect.DeepEqual(w, want) {
		t.Errorf("warm: %+v, %v", w, err)
	}
	var spec Spec
	want := Spec{
		Data: "train", Identity: strings.Repeat("5a", 16), Sampler: "pads", Seed: 7, BatchSize: 64,
		SamplerDropLast: true, Assign: "local",
		Trainer: 2, World: 4, Training: &Training{
			Life: 0x0123456789abcdef, Turn: 1,
			Checkpoint: &Checkpoint{
				Epoch: 3, Batch: 5,
				State: scheduler.Digest(strings.Repeat("a5", 16)),
			},
			Planned: []scheduler.PlanSource{{
				Epoch:  3,
				Scores: scheduler.Digest(strings.Repeat("5a", 16)),
			}},
		},
	}
	if err := json.Unmarshal(goldenPayload(t, "open").payload, &spec); err != nil ||
		!reflect.DeepEqual(spec, want) {
		t.Errorf("open: %+v, %v", spec, err)
	}
	if f := goldenPayload(t, "shutdown"); f.kind != KindShutdown || f.ticket != 13 {
		t.Errorf("shutdown: %+v", f)
	}
}

// evaluatedPlan has a batch that is evaluated.
func evaluatedPlan() *scheduler.Plan {
	ids := []scheduler.SampleID{4, 1, 3, 5, 0, 4, 6, 7, 2, 8, 9, 10}
	choice := scheduler.Choice{
		Epoch: 3, Drawn: ids, Served: ids, Evaluated: scheduler.Batches{First: 1, N: 1},
	}
	return &scheduler.Plan{
		Draws: choice.Draws(), Batch: 4, Consumer: []uint16{1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0},
		World: []int32{0, 0},
	}
}

func TestAppendGolden(t *testing.T) {
	golden := goldenFrames(t)
	for name, got := range map[string][]byte{
		"hello":          appendHello(nil, 1, goldenHello),
		"status":         AppendBare(nil, KindStatus, 12),
		"shutdown_reply": AppendBare(nil, KindShutdown+replyTo, 13),
		"error":          appendError(nil, 14, 3, "no plan for epoch 3"),
		"open_reply": appendJSON(nil, KindOpen+replyTo, 2,
			openReply{Stream: 1, Batches: 20, Scorer: "logrank"}),
		"save_reply": appendJSON(nil, KindSave+replyTo, 11,
			saveAnswer{"/run/s1/state", scheduler.Digest(strings.Repeat("5a", 16))}),
		"warm_reply": appendJSON(nil, KindWarm+replyTo, 15, Warmed{
			Staged: 2, Bytes: 300, Here: 1, NoRoom: 1, Failures: []WarmFailure{{9, "gone"}},
		}),
		"plan_reply_evaluated": slices.Concat(slices.Collect(planFrame(17, evaluatedPlan(), 1,
			scheduler.Digest(strings.Repeat("5a", 16)), "/run/s1/state-1-3"))...),
		"batch": appendBatch(nil, 5, 13, []batchEntry{
			{4, 1, 100, 0, scheduler.FromLocal, false},
			{0, 0, 200, 4096, scheduler.NotHere, false},
			{4, 1, 100, 0, scheduler.Unreadable, false},
		}, map[int]error{2: errors.New("file changed")}),
		"batch_even": appendBatch(nil, 6, 14,
			[]batchEntry{
				{4, 1, 100, 8, scheduler.FromPeer, false},
				{0, 0, 200, 8589934592, scheduler.FromStorage, false},
			}, nil),
	} {
		if !bytes.Equal(got, golden[name]) {
			t.Errorf("%s:\n got %x\nwant %x", name, got, golden[name])
		}
	}
}

// talk sends raw bytes to a door and returns all that comes back.
func talk(t *testing.T, c *cluster, raw []byte) []byte {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(c.dirs[0], doorName))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(raw); err != nil {
		return nil // refused already
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return nil
	}
	var out bytes.Buffer
	_, _ = out.ReadFrom(conn) // a reset is an answer too
	return out.Bytes()
}

// TestGarbageAtTheDoor checks that a node survives whatever is said to it.
func TestGarbageAtTheDoor(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	golden := goldenFrames(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var frames [][]byte
	for name, raw := range golden {
		if name != "open" { // a well-formed wish of a trainer is no garbage
			frames = append(frames, raw)
		}
	}
	for range 300 {
		raw := bytes.Clone(golden["hello"])
		for range rng.IntN(4) {
			raw = append(raw, frames[rng.IntN(len(frames))]...)
		}
		for range rng.IntN(5) {
			raw[rng.IntN(len(raw))] = byte(rng.Uint32())
		}
		talk(t, cl, raw[:rng.IntN(len(raw)+1)])
	}
	if got := cl.train(1, 8, 1,
		"sequential"); got[0] != "[0 1 2 3 4 5 6 7]\n[8 9 10 11 12 13 14 15]\n"+
		"[16 17 18 19 20 21 22 23]\n" {
		t.Errorf("after garbage, training gets %q", got)
	}
}

func TestOtherVersion(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	raw := bytes.Clone(goldenFrames(t)["hello"])
	raw[frameHeadBytes+len(hello)] = 9
	got := string(talk(t, cl, raw))
	if !strings.Contains(got, "the client speaks version 9 of the protocol, this rank version 2") {
		t.Errorf("the door said %q", got)
	}
}

func FuzzFrame(f *testing.F) {
	for _, raw := range goldenFrames(f) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var buf []byte
		r := bytes.NewReader(raw)
		for {
			fr, err := readFrame(r, &buf, (&conn{reportBytes: 4 << 20}).payloadLimit)
			if err != nil {
				return
			}
			if len(buf) > len(raw) {
				t.Fatalf("%d bytes of payload from %d bytes", len(buf), len(raw))
			}
			_, _ = parseHello(fr.payload)
			_, _ = parseGet(fr.payload, nil)
			_, _ = parseRelease(fr.payload, nil)
			_, _ = parseReport(fr.payload)
			_, _ = parseWarm(fr.payload)
			_, _ = parsePlace(fr.payload)
		}
	})
}
