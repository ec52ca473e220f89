package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// notes writes to stderr from a goroutine of its own: a pipe that nobody reads
// must not keep locker from ending a command whose lock is lost.
type notes chan func()

func newNotes() notes {
	n := make(notes, 64)
	go func() {
		for write := range n {
			write()
		}
	}()
	return n
}

// say queues a line. It does not wait; lines that stderr cannot take are dropped.
func (n notes) say(format string, args ...any) {
	text := line(fmt.Sprintf(format, args...))
	select {
	case n <- func() { _, _ = os.Stderr.WriteString(text) }:
	default:
	}
}

// flush returns when all queued lines are written, or after a second.
func (n notes) flush() {
	written := make(chan struct{})
	go func() { n <- func() { close(written) } }()
	select {
	case <-written:
	case <-time.After(time.Second):
	}
}

// warnings is a [slog.Handler] that writes the warnings of a backend to the notes. It
// leaves the engine's records out, since [locker.Trace] reports the same events.
type warnings struct{ notes }

func (w warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w warnings) WithGroup(string) slog.Handler                    { return w }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "locker: ") {
		return nil
	}
	text := "warning: " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	w.say("%s", text)
	return nil
}
