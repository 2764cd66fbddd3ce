package rank

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

var logged = logOptions{job: "77", step: "1", rank: 3, host: "nid4"}

// A logBuffer holds what was logged, also by the queue's timer.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}

// withLogger runs a test of a logger, in a bubble of synctest.
func withLogger(t *testing.T, test func(t *testing.T, l *slog.Logger, out *logBuffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out logBuffer
		test(t, newLogger(&out, logged), &out)
	})
}

func TestLogLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logBuffer
		newLogger(&out, logged).With("set", "train").Warn("a disk is slow", "seconds", 2.5)
		zone := time.Now().Format("Z07:00") // synctest's clock begins in 2000
		at := time.Now().Format("2006-01-02T15:04:05.000") + zone
		want := "time=" + at + ` level=WARN msg="a disk is slow" job=77 step=1 rank=3 host=nid4 set=train seconds=2.5` + "\n"
		if out.String() != want {
			t.Errorf("got  %swant %s", out.String(), want)
		}
	})
}

func TestLogLineOutsideAJob(t *testing.T) {
	var out logBuffer
	newLogger(&out, logOptions{host: "here"}).Info("hello")
	if want := "level=INFO msg=hello rank=0 host=here\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %s, want …%s", out.String(), want)
	}
}

func TestLogJSON(t *testing.T) {
	o := logged
	o.format = "json"
	var out logBuffer
	l := newLogger(&out, o)
	l.WithGroup("disk").Warn("slow", "n", 1)
	l.Debug("below the level")
	var line struct {
		Time, Level, Msg, Job, Step, Host string
		Rank                              int
		Disk                              struct{ N int }
	}
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if line.Level != "WARN" || line.Msg != "slow" || line.Job != "77" || line.Step != "1" ||
		line.Rank != 3 || line.Host != "nid4" || line.Disk.N != 1 {
		t.Errorf("got %s", out.String())
	}
}

func TestLogCollapsesWhatIsRepeated(t *testing.T) {
	withLogger(t, func(t *testing.T, l *slog.Logger, out *logBuffer) {
		for range 42 {
			l.Warn("a peer is silent", "peer", 2)
		}
		wantMessages(t, out, "a peer is silent")
		time.Sleep(logEvery)
		synctest.Wait()
		wantMessages(t, out, "a peer is silent (repeated 41 times)")
		time.Sleep(time.Hour)
		l.Warn("a peer is silent", "peer", 2)
		wantMessages(t, out, "a peer is silent")
		// The same message about another peer is not a repetition.
		l.Warn("a peer is silent", "peer", 5)
		wantMessages(t, out, "a peer is silent")
	})
}

func TestLogInSteadyState(t *testing.T) {
	withLogger(t, func(t *testing.T, l *slog.Logger, out *logBuffer) {
		for i := range 600 { // a minute
			l.Warn("one", "i", i)
			l.With("set", "b").Info("two", "i", i)
			time.Sleep(logEvery / 10)
		}
		synctest.Wait()
		lines := strings.Count(out.String(), "\n")
		if lines < 60 || lines > 60+logBurst {
			t.Errorf("%d lines in a minute, want about one a second", lines)
		}
		flushLog(l)
		if n := said(t, out.String()); n != 1200 {
			t.Errorf("the log accounts for %d messages of 1200", n)
		}
	})
}

func TestLogLosesNoError(t *testing.T) {
	withLogger(t, func(t *testing.T, l *slog.Logger, out *logBuffer) {
		for range 500 {
			l.Warn("noise")
			l.Error("the disk is gone")
			l.Log(t.Context(), slog.LevelError+4, "worse")
		}
		for message, want := range map[string]int{
			"the disk is gone": 500, "worse": 500,
			"noise": 1,
		} {
			if n := strings.Count(out.String(), message); n != want {
				t.Errorf("%s: %d lines, want %d", message, n, want)
			}
		}
	})
}

func TestFlushLog(t *testing.T) {
	withLogger(t, func(t *testing.T, l *slog.Logger, out *logBuffer) {
		for range 3 {
			l.Info("a")
			l.Info("b")
		}
		wantMessages(t, out, "a", "b")
		flushLog(l)
		wantMessages(t, out, "a (repeated 2 times)", "b (repeated 2 times)")
		time.Sleep(time.Minute)
		synctest.Wait()
		wantMessages(t, out)
		flushLog(slog.Default()) // another logger is left alone
	})
}

// A queued line keeps its token: lines that arrive meanwhile do not use it, and no second gets two
// lines.
func TestLogIsALineASecondAtMost(t *testing.T) {
	withLogger(t, func(t *testing.T, l *slog.Logger, out *logBuffer) {
		for i := range logBurst {
			l.Warn(fmt.Sprint("burst ", i))
		}
		out.Reset()
		time.Sleep(logEvery / 2)
		for i := range 60 {
			l.Warn("one", "i", i)
			time.Sleep(logEvery / 2)
			l.Warn("two", "i", i)
			time.Sleep(logEvery / 2)
		}
		synctest.Wait()
		if lines := strings.Count(out.String(), "\n"); lines < 59 || lines > 60 {
			t.Errorf("%d lines in a minute, want one a second", lines)
		}
		if one := strings.Count(out.String(), "one"); one < 29 {
			t.Errorf("%d lines of one of two messages that come equally often", one)
		}
		flushLog(l)
		if n := said(t, out.String()); n != 120 {
			t.Errorf("the log accounts for %d messages of 120", n)
		}
	})
}

func TestLogNotice(t *testing.T) {
	for format, want := range map[string]string{"text": `level=NOTICE msg=hello job=`, "json": `"level":"NOTICE","msg":"hello","job":`} {
		o := logged
		o.format, o.level = format, (&CacheOptions{}).level()
		var out logBuffer
		l := newLogger(&out, o)
		notice(l, "hello", "n", 1)
		l.Info("not without -v")
		if got := out.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got %s", format, got)
		}
	}
}

// Whatever is logged when, no message is lost, and after the burst there is at most one line a
// second.
func TestLogProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		gaps := rapid.SliceOfN(rapid.IntRange(0, 1500), 1, 200).Draw(rt,
			"milliseconds between messages")
		kinds := rapid.SliceOfN(rapid.IntRange(0, 3), len(gaps), len(gaps)).Draw(rt, "messages")
		synctest.Test(t, func(t *testing.T) {
			var out logBuffer
			l := newLogger(&out, logged)
			begin := time.Now()
			for i, gap := range gaps {
				time.Sleep(time.Duration(gap) * time.Millisecond)
				l.Warn(fmt.Sprint("m", kinds[i]), "i", i%3)
			}
			synctest.Wait()
			most := logBurst + int(time.Since(begin)/logEvery)
			if lines := strings.Count(out.String(), "\n"); lines > most {
				rt.Errorf("%d lines in %v, want %d at most", lines, time.Since(begin), most)
			}
			flushLog(l)
			if n := said(t, out.String()); n != len(gaps) {
				rt.Errorf("the log accounts for %d messages of %d\n%s", n, len(gaps), out.String())
			}
			time.Sleep(time.Hour) // the queue's timer ends
		})
	})
}

func TestLogConcurrently(t *testing.T) {
	var out logBuffer
	l := newLogger(&out, logged)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for range 100 {
				l.With("g", g).Warn("hello")
				l.Error("oh")
			}
		})
	}
	all.Wait()
	flushLog(l)
	if n := said(t, out.String()); n != 800 {
		t.Errorf("the log accounts for %d messages of 800", n)
	}
}

var message = regexp.MustCompile(`^time=\S+ level=[A-Z+0-9]+ msg=(?:"([^"]*)"|(\S+)) job=77 step=1 rank=3 host=nid4( .*)?$`)

// wantMessages checks the messages that were logged since the last call.
func wantMessages(t *testing.T, out *logBuffer, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(out.String()) {
		m := message.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("malformed line %q", line)
		}
		got = append(got, m[1]+m[2])
	}
	out.Reset()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// said returns the number of messages that the lines of a log stand for.
func said(t *testing.T, log string) int {
	t.Helper()
	total := 0
	for line := range strings.Lines(log) {
		if !message.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Fatalf("malformed line %q", line)
		}
		n := 1
		if _, after, found := strings.Cut(line, "(repeated "); found {
			if _, err := fmt.Sscan(after, &n); err != nil {
				t.Fatal(err)
			}
		}
		total += n
	}
	return total
}
