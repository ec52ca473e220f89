package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/spf13/cobra"
)

// Exit statuses of locker itself: from 64 to 78 those of BSD's sysexits; 126, 127 and 128+n as in shells.
const (
	statusUsage       = 64  // the command line or the URL is wrong
	statusUnavailable = 69  // the lock service cannot be used
	statusOutput      = 73  // the answer could not be written
	statusLost        = 74  // the lock could not be kept while the command ran
	statusHeld        = 75  // another holds the lock
	statusCannotRun   = 126 // the command is there and cannot be executed
	statusNotFound    = 127 // there is no such command
	statusSignal      = 128 // plus the signal's number
)

// exitError is an exit status, and the error to report; nil: report nothing.
type exitError struct {
	status int
	err    error
	death  death
}

// death is the signal that ended the command, or the wait; sig is nil if none did.
type death struct {
	sig     os.Signal
	unheard bool // only the command's process group got it, from the terminal
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) *exitError { return &exitError{status: statusUsage, err: err} }

// takes refuses fewer arguments, and more.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("an argument is missing: type %s", cmd.UseLine())
		case len(args) > most:
			return fmt.Errorf("%q is an argument too many: type %s", args[most], cmd.UseLine())
		}
		return nil
	}
}

// failure gives the error of a lock service its exit status.
func failure(err error) *exitError {
	switch {
	case errors.Is(err, locker.ErrInvalid):
		return usage(err)
	case errors.Is(err, locker.ErrUnavailable): // an outage is never reported as another holder (R17)
	case errors.Is(err, locker.ErrHeld), errors.Is(err, context.DeadlineExceeded):
		return &exitError{status: statusHeld, err: err}
	}
	return &exitError{status: statusUnavailable, err: err}
}

// line makes one line of text, with "locker: " in front once.
func line(text string) string {
	return "locker: " + strings.ReplaceAll(words(strings.TrimSpace(text)), "\n", "; ") + "\n"
}

// plain is what err says, to stand inside of a line.
func plain(err error) string { return words(err.Error()) }

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
