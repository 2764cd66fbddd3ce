package rank

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// logEvery is the average pause between lines of a log that exceeds its rate: one line a
	// second.
	logEvery = time.Second

	// logBurst is how many lines may be written at once after a quiet period: a rank's start logs
	// about ten.
	logBurst = 20

	// levelNotice is for lines that are not warnings but that everybody should see: above INFO,
	// below WARN.
	levelNotice = slog.LevelInfo + 2
)

// notice writes a line that everybody should see.
func notice(l *slog.Logger, message string, args ...any) {
	l.Log(context.Background(), levelNotice, message, args...)
}

// LogFormats are the values of --log-format.
var LogFormats = []string{"text", "json"}

// logOptions are the fields of every line of a rank's log.
type logOptions struct {
	format string     // one of LogFormats; "" is text
	level  slog.Level // the lowest level that is written
	job    string     // omitted if ""
	step   string     // omitted if ""
	rank   int
	host   string
}

// newLogger returns a logger to w that writes a whole line at a time: text (logfmt) or JSON.
//
// A message that repeats within a second, and any after a burst of logBurst lines, is queued;
// queued lines with equal level and message are merged into the last one, with a count. Lines at
// slog.LevelError and above are never queued or merged. flushLog writes the queue.
func newLogger(w io.Writer, o logOptions) *slog.Logger {
	q := &logQueue{to: w, last: map[logKey]logSeen{}}
	options := &slog.HandlerOptions{Level: o.level, ReplaceAttr: nameNotice}
	var format slog.Handler = slog.NewTextHandler(&q.line, options)
	if o.format == "json" {
		format = slog.NewJSONHandler(&q.line, options)
	}
	logger := slog.New(&logHandler{format, q})
	for _, a := range []slog.Attr{slog.String("job", o.job), slog.String("step", o.step)} {
		if a.Value.String() != "" {
			logger = logger.With(a)
		}
	}
	return logger.With("rank", o.rank, "host", o.host)
}

// nameNotice names levelNotice NOTICE, as in syslog.
func nameNotice(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == levelNotice {
		a.Value = slog.StringValue("NOTICE")
	}
	return a
}

// flushLog writes the queued lines of a newLogger, before a process ends.
func flushLog(l *slog.Logger) {
	if h, ok := l.Handler().(*logHandler); ok {
		h.queue.flush()
	}
}

// A logHandler formats records into the queue's line.
type logHandler struct {
	slog.Handler
	queue *logQueue
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.Handler.WithAttrs(attrs), h.queue}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.Handler.WithGroup(name), h.queue}
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.queue.handle(ctx, h.Handler, r)
}

// A logKey is what queued lines have in common if they can be merged.
type logKey struct {
	level   slog.Level
	message string
}

// A logSeen is the last line of a key, and when it came.
type logSeen struct {
	text string // without its time
	at   time.Time
}

// A logWait is a line that waits for its turn.
type logWait struct {
	key    logKey
	format slog.Handler
	record slog.Record
	count  int
}

// A logQueue bounds the lines of a logger and of all loggers derived from it. Its methods may be
// called concurrently.
type logQueue struct {
	mu      sync.Mutex
	to      io.Writer
	line    bytes.Buffer // the formatted line
	last    map[logKey]logSeen
	waiting []*logWait // the first is due first
	timer   *time.Timer
	// one token, for one line, is added every logEvery; those up to this time have been used
	spent time.Time
}

func (q *logQueue) handle(ctx context.Context, format slog.Handler, r slog.Record) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.Level >= slog.LevelError {
		return q.write(ctx, format, r)
	}
	key := logKey{r.Level, r.Message}
	text, err := q.text(ctx, format, r)
	if err != nil {
		return err
	}
	now := time.Now()
	before, known := q.last[key]
	q.remember(key, logSeen{text, now})
	at := slices.IndexFunc(q.waiting, func(w *logWait) bool { return w.key == key })
	switch {
	case at >= 0:
		w := q.waiting[at]
		w.format, w.record = format, r.Clone()
		w.count++
	case known && before.text == text && now.Sub(before.at) < logEvery,
		!q.spend(now, min(1, len(q.waiting))):
		q.waiting = append(q.waiting, &logWait{key, format, r.Clone(), 1})
		if q.timer == nil {
			q.timer = time.AfterFunc(logEvery, q.next)
		}
	default:
		return q.write(ctx, format, r)
	}
	return nil
}

// spend uses up a token if more than left tokens are available.
func (q *logQueue) spend(now time.Time, left int) bool {
	if full := now.Add(-logBurst * logEvery); q.spent.Before(full) {
		q.spent = full
	}
	if now.Sub(q.spent) < time.Duration(1+left)*logEvery {
		return false
	}
	q.spent = q.spent.Add(logEvery)
	return true
}

// remember keeps the messages of the last second, and forgets older ones when there are many.
func (q *logQueue) remember(key logKey, seen logSeen) {
	if len(q.last) >= 1000 {
		for k, old := range q.last {
			if seen.at.Sub(old.at) >= logEvery {
				delete(q.last, k)
			}
		}
	}
	q.last[key] = seen
}

// next writes the line that is due, and schedules itself while others are queued. A token is
// available, since no other line uses one while lines are queued.
func (q *logQueue) next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = nil
	if q.spend(time.Now(), 0) {
		q.writeFirst()
	}
	if len(q.waiting) > 0 {
		q.timer = time.AfterFunc(logEvery, q.next)
	}
}

func (q *logQueue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		q.writeFirst()
	}
}

// writeFirst writes the line that has waited longest, if any.
func (q *logQueue) writeFirst() {
	if len(q.waiting) == 0 {
		return
	}
	w := q.waiting[0]
	q.waiting = q.waiting[1:]
	if w.count > 1 {
		w.record.Message += fmt.Sprintf(" (repeated %d times)", w.count)
	}
	// there is nowhere to report that a log cannot be written
	_ = q.write(context.Background(), w.format, w.record)
}

// text formats a record without its time.
func (q *logQueue) text(ctx context.Context, format slog.Handler, r slog.Record) (string, error) {
	q.line.Reset()
	r.Time = time.Time{}
	err := format.Handle(ctx, r)
	return q.line.String(), err
}

// write formats a record and writes it in one piece, so that lines of several ranks do not mix.
func (q *logQueue) write(ctx context.Context, format slog.Handler, r slog.Record) error {
	q.line.Reset()
	if err := format.Handle(ctx, r); err != nil {
		return err
	}
	_, err := q.to.Write(q.line.Bytes())
	return err
}
