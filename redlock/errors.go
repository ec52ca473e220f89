package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/redisnode"
)

// QuorumError is the error of an operation that too few nodes answered, with
// each node's cause. It matches [driver.ErrUnavailable], unless so many nodes
// refuse the client (wrong password, no permission) that trying again is no use.
type QuorumError struct {
	Op       string // such as "acquire", "renew", "release"
	Need, Of int    // how many nodes it takes, and how many there are
	Answered int    // how many did as they were asked, or refused it
	// Abstained is how many answered but may not vote yet, since they were
	// restarted; in Wait there may be a quorum. 0: that is not what is in the way.
	Abstained int
	Wait      time.Duration
	Causes    []NodeError
	Why       string // what else was in the way; "": the nodes
	final     bool
}

// NodeError is why one node did not answer.
type NodeError struct {
	Node string
	Err  error
}

// Error names each node and its cause, on one line.
func (e *QuorumError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "redlock: %s: %d of %d nodes answered, it takes %d", e.Op, e.Answered+e.Abstained, e.Of,
		e.Need)
	if e.Abstained > 0 {
		fmt.Fprintf(&s, ", but %d of them may not vote yet", e.Abstained)
		if e.Wait > 0 {
			fmt.Fprintf(&s, ": wait %v", e.Wait.Round(10*time.Millisecond))
		}
	}
	if e.Why != "" {
		s.WriteString(": " + e.Why)
	}
	for i, c := range e.Causes {
		s.WriteString([]string{": ", "; "}[min(i, 1)])
		text := c.Err.Error()
		if !strings.Contains(text, c.Node) {
			s.WriteString(c.Node + ": ")
		}
		s.WriteString(text)
	}
	return s.String()
}

// Unwrap returns driver.ErrUnavailable, where it matches that, and the causes.
func (e *QuorumError) Unwrap() []error {
	var errs []error
	if !e.final {
		errs = append(errs, driver.ErrUnavailable)
	}
	for _, c := range e.Causes {
		errs = append(errs, c.Err)
	}
	return errs
}

// unanswered returns the causes before any node has answered.
func (b *Backend) unanswered() []error { return slices.Repeat([]error{errNoAnswer}, len(b.nodes)) }

// quorumError makes one of the causes per node; nil: that node answered.
func (b *Backend) quorumError(op, why string, causes []error) *QuorumError {
	e := &QuorumError{Op: op, Need: b.quorum, Of: len(b.nodes), Why: why}
	refused := 0
	var waits []time.Duration // when those that could be a quorum vote
	for i, err := range causes {
		var g *guardedError
		switch {
		case err == nil:
			e.Answered++
			waits = append(waits, 0)
			continue
		case errors.As(err, &g):
			e.Abstained++
			waits = append(waits, g.left())
		}
		if hopeless(err) {
			refused++
		}
		e.Causes = append(e.Causes, NodeError{b.nodes[i].Addr, err})
	}
	slices.Sort(waits)
	if len(waits) >= b.quorum {
		e.Wait = waits[b.quorum-1]
	}
	e.final = refused > len(b.nodes)-b.quorum
	return e
}

// tooFew is the error of an operation that fewer nodes than a quorum have answered; nil: a quorum has.
func (b *Backend) tooFew(ctx context.Context, op string, causes []error) error {
	err := b.quorumError(op, "", causes)
	if err.Answered >= b.quorum {
		return nil
	}
	return b.failure(ctx, err)
}

// failure is what the caller is told of err, whose context may have ended, or the Backend.
func (b *Backend) failure(ctx context.Context, err *QuorumError) error {
	switch {
	case b.isClosed():
		return driver.ErrClosed
	case ctx.Err() != nil:
		return oneline.Join(ctx.Err(), err)
	}
	return err
}

// hopeless reports an error that stays until somebody changes something.
func hopeless(err error) bool {
	var e *redisnode.Error
	var f *redisnode.ForeignError
	return errors.As(err, &e) && e.Refused || errors.As(err, &f)
}

var (
	errNoAnswer  = errors.New("no answer in time")
	errTakenBack = errors.New("this attempt was taken back before")
)

// ourLimit is err, without the sign of a deadline that was not that of ctx but our own.
func ourLimit(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return errNoAnswer
	}
	return err
}
