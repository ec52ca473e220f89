package bridge

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
)

// Backend locks on two Backends at once. It is a [driver.Backend]: programs pass it to [locker.New], or
// open it with two URLs, and use the Client.
type Backend struct {
	sides [2]side     // the first one first
	mark  string      // the suffix of labels of holders on both
	apart atomic.Bool // the two are known to be different services

	life   context.Context // ends when Close begins
	end    context.CancelFunc
	asking sync.WaitGroup // attempts; mu guards its Add

	mu     sync.Mutex
	closed bool
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Prompt   = (*Backend)(nil)
	_ driver.Operator = (*Backend)(nil)
	_ driver.Checker  = (*Backend)(nil)
)

// side is one of the two services.
type side struct {
	driver.Backend
	name   string         // for people: its URL without secrets, or the name of the service
	prefix string         // put before every name
	base   uint64         // added to every token
	client *locker.Client // locks a name on this service alone
}

// New returns a Backend of both. It locks on first and then on second; the order must be the same in
// all programs. Close closes both. An error says which of the two cannot be used: neither may be a
// bridge itself, and there must be a TTL that both accept. If both turn out to be the same service,
// where the two locks would exclude each other, every Acquire returns an error that matches ErrInvalid.
func New(first, second driver.Backend) (*Backend, error) {
	return newBackend([2]side{{Backend: first}, {Backend: second}})
}

func newBackend(sides [2]side) (*Backend, error) {
	b := &Backend{sides: sides}
	b.life, b.end = context.WithCancel(context.Background())
	for i := range b.sides {
		s := &b.sides[i]
		if s.Backend == nil {
			return nil, invalid("one of the two backends is nil")
		}
		if _, pair := s.Backend.(*Backend); pair {
			return nil, invalid("one of the two backends is a bridge itself: give two services")
		}
		s.name = cmp.Or(s.name, s.Guarantees().Backend)
		client, err := locker.New(s.Backend, &locker.Options{Prefix: s.prefix, TokenBase: s.base})
		if err != nil {
			return nil, s.fail(bare(err))
		}
		s.client = client
	}
	if g := b.Guarantees(); g.MaxTTL < g.MinTTL {
		return nil, invalid("%s and %s have no TTL in common: one accepts none above %v, the other none below %v",
			b.sides[0].name, b.sides[1].name, g.MaxTTL, g.MinTTL)
	}
	b.mark = " [" + b.sides[0].name + " " + b.sides[1].name + "]"
	if len(b.mark) > locker.MaxLabelLen/2 {
		b.mark = " [" + b.sides[0].Guarantees().Backend + " " + b.sides[1].Guarantees().Backend + "]"
	}
	return b, nil
}

const (
	// unbounded is longer than every TTL.
	unbounded time.Duration = 366 * 24 * time.Hour
	// apartAtMost, or a TTL if that is shorter, may lie between the requests to the two services under
	// a MinHold. The pair's MinHold counts from before the second request, so each service keeps its
	// lock that much longer.
	apartAtMost = 10 * time.Second
)

// Queue implements [driver.Queue]: there is one if both services have one. Callers wait inside Acquire,
// and one that asks during a release is not refused.
func (b *Backend) Queue() bool {
	return driver.HasQueue(b.sides[0].Backend) && driver.HasQueue(b.sides[1].Backend)
}

// Guarantees returns the weaker promise of the two in each field, and no shared locks.
func (b *Backend) Guarantees() locker.Guarantees {
	first, second := b.sides[0].Guarantees(), b.sides[1].Guarantees()
	return locker.Guarantees{
		Backend:           first.Backend + "+" + second.Backend,
		Scope:             min(first.Scope, second.Scope),
		Exclusion:         min(first.Exclusion, second.Exclusion),
		Fencing:           min(first.Fencing, second.Fencing),
		Shared:            locker.SharingNone, // even if both have them: the engine refuses Shared
		DeadHolder:        min(first.DeadHolder, second.DeadHolder),
		DeadHolderSlack:   max(first.DeadHolderSlack, second.DeadHolderSlack),
		ServerCrashes:     min(first.ServerCrashes, second.ServerCrashes),
		SurvivesRestart:   first.SurvivesRestart && second.SurvivesRestart,
		SurvivesFailover:  first.SurvivesFailover && second.SurvivesFailover,
		SurvivesClockJump: first.SurvivesClockJump && second.SurvivesClockJump,
		SurvivesPause:     first.SurvivesPause && second.SurvivesPause,
		MinTTL:            max(first.MinTTL, second.MinTTL),
		MaxTTL:            min(cmp.Or(first.MaxTTL, unbounded), cmp.Or(second.MaxTTL, unbounded)),
		MinHoldSlack:      max(first.MinHoldSlack, second.MinHoldSlack),
		MaxMinHold:        max(0, min(first.MaxMinHold, second.MaxMinHold)-apartAtMost),
		RestsOn: "both services, one after the other, while a fleet moves between them: each promise is the weaker " +
			"of the two; " +
			first.Backend + " rests on " + first.RestsOn + "; " + second.Backend + " rests on " + second.RestsOn,
	}
}

// Prompt returns true if both services keep that promise.
func (b *Backend) Prompt() bool {
	for _, s := range b.sides {
		if p, ok := s.Backend.(driver.Prompt); !ok || !p.Prompt() {
			return false
		}
	}
	return true
}

// closing bounds how long Close waits for attempts that release what they hold. The engine waits 1.5
// seconds for Close.
const closing = 300 * time.Millisecond

// Close ends the attempts that wait, and closes both.
func (b *Backend) Close() error {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	b.mu.Unlock()
	if closed {
		return nil
	}
	b.end()
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	go func() {
		b.asking.Wait()
		cancel()
	}()
	<-ctx.Done() // a late one ends when its service does
	errs := b.both(func(i int) error { return oneline.Join(bare(b.sides[i].client.Close()), b.sides[i].Close()) })
	return oneline.Join(errs[:]...)
}

// begin counts an attempt, which Close waits for; it returns false if the Backend is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.asking.Add(1)
	}
	return !b.closed
}

// label is the label that the services store for a holder with both URLs. It keeps the end of a long
// one, which has the process ID.
func (b *Backend) label(l string) string {
	over := len(l) + len(b.mark) - locker.MaxLabelLen
	return strings.ToValidUTF8(l[min(max(over, 0), len(l)):], "") + b.mark
}

// both calls f for both services at the same time.
func (b *Backend) both(f func(i int) error) (errs [2]error) {
	var second sync.WaitGroup
	second.Go(func() { errs[1] = b.sides[1].fail(f(1)) })
	errs[0] = b.sides[0].fail(f(0))
	second.Wait()
	return errs
}

// fail adds the service's name to err.
func (s *side) fail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: bridge: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
