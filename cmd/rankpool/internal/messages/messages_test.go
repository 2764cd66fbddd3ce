package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSentences(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		log     func(*slog.Logger)
		want    string
	}{
		{"plain", Options{}, func(l *slog.Logger) { l.Warn("hello") }, "rankpool: hello\n"},
		{
			"of a rank",
			Options{Speaker: "rank 3 on nid4"},
			func(l *slog.Logger) { l.With("data", "train").Warn("a disk is slow", "seconds", 2.5) },
			"rankpool: rank 3 on nid4: a disk is slow (data: train, seconds: 2.5)\n",
		},
		{
			"error",
			Options{},
			func(l *slog.Logger) { l.Error("no tier", "data", "train", "error", errors.New("it is full")) },
			"rankpool: no tier: it is full (data: train)\n",
		},
		{
			"level",
			Options{Level: LevelNotice},
			func(l *slog.Logger) { l.Info("not without -v"); Notice(l, "hello", "n", 1) },
			"rankpool: hello (n: 1)\n",
		},
		{
			"group",
			Options{},
			func(l *slog.Logger) { l.WithGroup("disk").Warn("slow", "n", 1) },
			"rankpool: slow (n: 1)\n",
		},
	} {
		var out bytes.Buffer
		c.log(New(&out, c.options))
		if out.String() != c.want {
			t.Errorf("%s: got %q, want %q", c.name, out.String(), c.want)
		}
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, Options{
		Format: "json", Level: LevelNotice, Speaker: "rank 3",
		Fields: []slog.Attr{slog.String("job", "77"), slog.Int("rank", 3)},
	})
	Notice(l.With("set", "b"), "slow", "n", 1)
	l.Info("below the level")
	var line struct {
		Time, Level, Msg, Job, Set string
		Rank, N                    int
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if line.Level != "NOTICE" || line.Msg != "slow" || line.Job != "77" || line.Rank != 3 ||
		line.Set != "b" || line.N != 1 || line.Time == "" {
		t.Errorf("got %s", out.String())
	}
}

// After a burst there is a message a second, no error is lost, and every message is counted.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := Limit(New(&out, Options{}))
		for i := range 600 { // a minute
			l.Warn("one", "i", i)
			l.With("set", "b").Warn("two", "i", i)
			time.Sleep(time.Second / 10)
		}
		lines := strings.Count(out.String(), "\n")
		if lines < 60 || lines > 60+burst {
			t.Errorf("%d lines in a minute, want about one a second", lines)
		}
		l.Error("the disk is gone") // says what is left
		for line := range strings.Lines(out.String()) {
			var n int
			if _, after, found := strings.Cut(line, "messages left out before: "); found {
				if _, err := fmt.Sscan(after, &n); err != nil {
					t.Fatal(err)
				}
			}
			lines += n
		}
		if lines != 1200 {
			t.Errorf("the log accounts for %d messages of 1200", lines)
		}
		before := strings.Count(out.String(), "\n")
		for range 500 {
			l.Error("the disk is gone")
		}
		if got := strings.Count(out.String(), "\n") - before; got != 500 {
			t.Errorf("%d errors of 500", got)
		}
	})
}
