package door_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/mpicache/door/doortest"
	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

func goldenPayload(t *testing.T, name string) door.Frame {
	t.Helper()
	raw, ok := doortest.GoldenFrames(t, "../../docs/wire/frames.txt")[name]
	if !ok {
		t.Fatalf("golden frame %q is missing", name)
	}
	var buf []byte
	f, err := door.ReadReply(bytes.NewReader(raw), &buf)
	if err != nil || len(f.Payload) != len(raw)-12 {
		t.Fatalf("%s: %d bytes of payload, %v", name, len(f.Payload), err)
	}
	return f
}

var goldenHello = door.Hello{
	Version: 5, Trainer: 2, World: 4, Worker: 0x0123456789abcdef, Process: 0x1111111111111111,
	Family: 0x2222222222222222,
}

var goldenTally = door.Tally{
	Stream: 1, Epoch: 3, Counts: stats.Counts{
		stats.HitsLocal: 60, stats.HitsRemote: 2, stats.StorageReads: 1, stats.FallbackReads: 1,
		stats.StorageBytes: 4096, stats.FallbackBytes: 512, stats.StallSeconds: 1500,
	},
}

func TestParseGolden(t *testing.T) {
	h, err := door.ParseHello(goldenPayload(t, "hello").Payload)
	if err != nil || h != goldenHello {
		t.Errorf("hello: %+v, %v", h, err)
	}
	g, err := door.ParseGet(goldenPayload(t, "get").Payload, nil)
	if want := (door.Get{
		Stream: 1, Epoch: 3, Batch: 9, Leases: []uint32{11, 12}, Tally: goldenTally,
	}); err != nil ||
		!reflect.DeepEqual(g, want) {
		t.Errorf("get: %+v, %v", g, err)
	}
	g, err = door.ParseRelease(goldenPayload(t, "release").Payload, nil)
	if want := (door.Get{Leases: []uint32{13}, Tally: goldenTally}); err != nil ||
		!reflect.DeepEqual(g, want) {
		t.Errorf("release: %+v, %v", g, err)
	}
	g, err = door.ParseRelease(goldenPayload(t, "release_evaluated").Payload, nil)
	evaluated := goldenTally
	evaluated.Counts[stats.Evaluated], evaluated.Counts[stats.EvaluatedReads] = 16, 3
	if err != nil || len(g.Leases) > 0 || g.Tally != evaluated {
		t.Errorf("release with evaluated samples: %+v, %v", g, err)
	}
	frame := goldenPayload(t, "release_unmeasured").Payload
	g, err = door.ParseRelease(frame, nil)
	unmeasured := goldenTally
	unmeasured.Counts[stats.StallSeconds], unmeasured.Counts[stats.Unmeasured] = 0, 1
	if err != nil || g.Tally != unmeasured || !bytes.HasSuffix(frame, unmeasured.Append(nil)) {
		t.Errorf("release of a trainer that does not measure: %+v, %v", g, err)
	}
	if goldenTally.Fell(unmeasured) || unmeasured.Fell(goldenTally) {
		t.Error("a trainer that begins to measure, or ends, counts from 0")
	}
	r, err := door.ParseReport(goldenPayload(t, "report").Payload)
	if err != nil || r.Stream != 1 || r.Epoch != 3 || r.Batch != 9 || len(r.Losses) != 3 ||
		r.Losses[0] != 0.5 ||
		!math.IsNaN(float64(r.Losses[1])) || r.Losses[2] != 2 {
		t.Errorf("report: %+v, %v", r, err)
	}
	r, err = door.ParseReport(goldenPayload(t, "report_embedded").Payload)
	if want := []float32{1.5, -2, 0, 0.25, 4, 8}; err != nil || len(r.Losses) != 3 ||
		r.Dimensions != 2 || !slices.Equal(r.Embeddings, want) {
		t.Errorf("report with embeddings: %+v, %v", r, err)
	}
	l, err := door.ParseList(goldenPayload(t, "list").Payload)
	if want := (door.List{
		Stream: 1, Epoch: 4, Flags: door.ListAhead, Total: 6,
		Numbers: []draw.SampleID{2, 2, 1, 4, 0, 4},
	}); err != nil || !reflect.DeepEqual(l, want) {
		t.Errorf("list: %+v, %v", l, err)
	}
	l, err = door.ParseList(goldenPayload(t, "list_final").Payload)
	if err != nil || !l.Confirms() || l.Stream != 1 || l.Epoch != 4 || l.Flags != 0 {
		t.Errorf("list that is final: %+v, %v", l, err)
	}
	var spec protocol.Spec
	want := protocol.Spec{
		Data: "train", Identity: strings.Repeat("5a", 16), Sampler: "pads", Seed: 7, BatchSize: 64,
		SamplerDropLast: true, Assign: "local",
		Trainer: 2, World: 4, Training: &protocol.Training{
			Life: 0x0123456789abcdef, Turn: 1,
			Checkpoint: &protocol.Checkpoint{
				Epoch: 3, Batch: 5,
				State: protocol.Digest(strings.Repeat("a5", 16)),
			},
			Planned: []protocol.PlanSource{{
				Epoch:  3,
				Scores: protocol.Digest(strings.Repeat("5a", 16)),
			}},
		},
	}
	if err := json.Unmarshal(goldenPayload(t, "open").Payload, &spec); err != nil ||
		!reflect.DeepEqual(spec, want) {
		t.Errorf("open: %+v, %v", spec, err)
	}
	if f := goldenPayload(t, "shutdown"); f.Kind != door.KindShutdown || f.Ticket != 13 {
		t.Errorf("shutdown: %+v", f)
	}
}

// evaluatedPlan has a batch that is evaluated.
func evaluatedPlan() *plan.Plan {
	ids := []draw.SampleID{4, 1, 3, 5, 0, 4, 6, 7, 2, 8, 9, 10}
	choice := draw.Choice{
		Epoch: 3, Drawn: ids, Served: ids, Evaluated: draw.Batches{First: 1, N: 1},
	}
	return &plan.Plan{
		Draws: choice.Draws(), Batch: 4, Consumer: []uint16{1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0},
		World: []int32{0, 0},
	}
}

func TestAppendGolden(t *testing.T) {
	golden := doortest.GoldenFrames(t, "../../docs/wire/frames.txt")
	for name, got := range map[string][]byte{
		"hello":          door.AppendHello(nil, 1, goldenHello),
		"status":         door.AppendFrame(nil, door.KindStatus, 12, nil),
		"shutdown_reply": door.AppendFrame(nil, door.KindShutdown.Reply(), 13, nil),
		"error": door.AppendError(nil, 14, door.Error{
			Code: 3, Sentence: "no plan for epoch 3",
		}),
		"open_reply": door.AppendJSON(nil, door.KindOpen.Reply(), 2,
			door.Opened{Stream: 1, Batches: 20, Scorer: "logrank"}),
		"save_reply": door.AppendJSON(nil, door.KindSave.Reply(), 11,
			door.Saved{Saved: "/run/s1/state", State: protocol.Digest(strings.Repeat("5a", 16))}),
		"plan_reply_evaluated": slices.Concat(slices.Collect(door.PlanFrame(17, evaluatedPlan(), 1,
			protocol.Digest(strings.Repeat("5a", 16))))...),
		"batch": door.AppendBatch(nil, 5, 13, []door.BatchEntry{
			{ID: 4, Label: 1, Length: 100, Offset: 0, Source: stager.FromLocal},
			{ID: 0, Label: 0, Length: 200, Offset: 4096, Source: stager.NotHere},
			{ID: 4, Label: 1, Length: 100, Offset: 0, Source: stager.Unreadable},
		}, map[int]error{2: errors.New("file changed")}),
		"batch_even": door.AppendBatch(nil, 6, 14,
			[]door.BatchEntry{
				{ID: 4, Label: 1, Length: 100, Offset: 8, Source: stager.FromPeer},
				{ID: 0, Label: 0, Length: 200, Offset: 8589934592, Source: stager.FromStorage},
			}, nil),
	} {
		if !bytes.Equal(got, golden[name]) {
			t.Errorf("%s:\n got %x\nwant %x", name, got, golden[name])
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, raw := range doortest.GoldenFrames(f, "../../docs/wire/frames.txt") {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var buf []byte
		r := bytes.NewReader(raw)
		for {
			fr, err := door.Read(r, &buf, door.Limits{ReportBytes: 4 << 20}.Payload)
			if err != nil {
				return
			}
			if len(buf) > len(raw) {
				t.Fatalf("%d bytes of payload from %d bytes", len(buf), len(raw))
			}
			_, _ = door.ParseHello(fr.Payload)
			_, _ = door.ParseGet(fr.Payload, nil)
			_, _ = door.ParseRelease(fr.Payload, nil)
			_, _ = door.ParseReport(fr.Payload)
			_, _ = door.ParsePlace(fr.Payload)
			_, _ = door.ParseList(fr.Payload)
		}
	})
}

// The longest tally, with as many leases as a connection may hold, is within the limits.
func TestLongestTallyIsAllowed(t *testing.T) {
	tally := goldenTally
	tally.Counts[stats.Evaluated] = 1
	bytes := 4*door.MaxLeases + len(tally.Append(nil))
	for kind, head := range map[door.Kind]int{door.KindGet: 16, door.KindRelease: 4} {
		if limit, _ := (door.Limits{}).Payload(kind); limit != head+bytes {
			t.Errorf("kind %d: at most %d bytes, want %d", kind, limit, head+bytes)
		}
	}
}
