// Package messages writes what run and the ranks say on stderr: sentences for people that begin
// with "rankpool: ", or JSON lines.
package messages

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"rankpool/cmd/internal/outlet"
)

// Formats are the values of --log-format.
var Formats = []string{"text", "json"}

// LevelNotice is for what everybody should see but is no warning: above INFO, below WARN.
const LevelNotice = slog.LevelInfo + 2

// A limited logger may write burst messages at once, and then one a second: a rank's start has
// about ten.
const burst = 20

// Options say how messages look.
type Options struct {
	Format string     // one of Formats; "" is text
	Level  slog.Level // the lowest level that is written
	// Speaker begins each sentence, as in "rank 3 on nid4"; "" for none
	Speaker string
	Fields  []slog.Attr // of each JSON line
}

// own is this process's own logger.
var own = New(stderr{}, Options{})

// stderr is what outlet.Stderr is at the time.
type stderr struct{}

func (stderr) Write(line []byte) (int, error) { return outlet.Stderr.Write(line) }

// Use selects the format of this process's own messages. Call it before others are written.
func Use(format string) { own = New(stderr{}, Options{Format: format}) }

// Say writes a sentence of this process's own.
func Say(format string, args ...any) { Notice(own, fmt.Sprintf(format, args...)) }

// End writes the error that ends this process.
func End(err error) { own.Error(err.Error()) }

// New returns a logger to w, which gets one line a write.
func New(w io.Writer, o Options) *slog.Logger {
	var format slog.Handler = &sentences{speaker: o.Speaker, level: o.Level, to: w, mu: &sync.Mutex{}}
	if o.Format == "json" {
		format = slog.NewJSONHandler(w,
			&slog.HandlerOptions{Level: o.Level, ReplaceAttr: nameNotice}).WithAttrs(o.Fields)
	}
	return slog.New(format)
}

// Limit leaves out the messages of a logger below slog.LevelError that come too often; the next one
// says how many were.
func Limit(l *slog.Logger) *slog.Logger {
	return slog.New(&limited{l.Handler(), &limit{tokens: rate.NewLimiter(1, burst)}})
}

// Notice writes a message that everybody should see.
func Notice(l *slog.Logger, message string, args ...any) {
	l.Log(context.Background(), LevelNotice, message, args...)
}

// nameNotice names LevelNotice NOTICE, as in syslog.
func nameNotice(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == LevelNotice {
		a.Value = slog.StringValue("NOTICE")
	}
	return a
}

// sentences is a handler that writes a message and its values as a sentence: "rankpool: rank 3 on
// nid4: a disk is slow: it is full (data: train)". An error follows its message.
type sentences struct {
	speaker string
	level   slog.Level
	attrs   []slog.Attr
	mu      *sync.Mutex
	to      io.Writer
}

func (s *sentences) Enabled(_ context.Context, l slog.Level) bool { return l >= s.level }

func (s *sentences) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *s
	more.attrs = append(s.attrs[:len(s.attrs):len(s.attrs)], attrs...)
	return &more
}

func (s *sentences) WithGroup(string) slog.Handler { return s } // names need no groups here

func (s *sentences) Handle(_ context.Context, r slog.Record) error {
	text := "rankpool: "
	if s.speaker != "" {
		text += s.speaker + ": "
	}
	text += r.Message
	var values []string
	add := func(a slog.Attr) bool {
		if a.Key == "error" {
			text += ": " + a.Value.String()
		} else {
			values = append(values, a.Key+": "+a.Value.String())
		}
		return true
	}
	for _, a := range s.attrs {
		add(a)
	}
	r.Attrs(add)
	if len(values) > 0 {
		text += " (" + strings.Join(values, ", ") + ")"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := io.WriteString(s.to, text+"\n")
	return err
}

// limited is a handler that leaves messages out when there are too many.
type limited struct {
	slog.Handler
	limit *limit
}

// A limit is shared by a logger and those derived from it.
type limit struct {
	tokens *rate.Limiter
	mu     sync.Mutex
	left   int // how many messages were left out since the last one
}

func (l *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limited{l.Handler.WithAttrs(attrs), l.limit}
}

func (l *limited) WithGroup(name string) slog.Handler {
	return &limited{l.Handler.WithGroup(name), l.limit}
}

func (l *limited) Handle(ctx context.Context, r slog.Record) error {
	left, ok := l.limit.pass(r.Level)
	if !ok {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("messages left out before", left))
	}
	return l.Handler.Handle(ctx, r)
}

// pass reports whether a message is written, and how many were left out before it.
func (l *limit) pass(level slog.Level) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if level < slog.LevelError && !l.tokens.Allow() {
		l.left++
		return 0, false
	}
	left, l.left = l.left, 0
	return left, true
}
