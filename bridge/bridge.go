package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// Backend locks on two Backends at once. It is a [driver.Backend]; programs give it
// to [locker.New], or open it by two URLs, and use the Client.
type Backend struct {
	sides [2]side     // the first one first
	mark  string      // what a label ends with that came with both
	apart atomic.Bool // it was seen that they are two services

	life   context.Context // ends when Close begins
	end    context.CancelFunc
	asking sync.WaitGroup // the attempts; mu guards its Add

	mu   sync.Mutex
	held map[*hold]time.Time // what Close has to give back, by then or at once; nil: it is closed
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
	prefix string         // is put before every name
	base   uint64         // is added to every token
	client *locker.Client // locks a name on this service alone
}

// New returns a Backend of both. It locks first before second; the order has to be
// the same in all programs. Close closes both. An error says which of the two cannot
// be used: neither may be a pair itself, and there has to be a TTL that both accept.
// If both turn out to be one service, whose locks the two would take from each other,
// every Acquire returns an error that matches ErrInvalid.
func New(first, second driver.Backend) (*Backend, error) {
	return newBackend([2]side{{Backend: first}, {Backend: second}})
}

func newBackend(sides [2]side) (*Backend, error) {
	b := &Backend{sides: sides, held: make(map[*hold]time.Time)}
	b.life, b.end = context.WithCancel(context.Background())
	for i := range b.sides {
		s := &b.sides[i]
		if s.Backend == nil {
			return nil, invalid("one of the two backends is nil")
		}
		if _, pair := s.Backend.(*Backend); pair {
			return nil, invalid("one of the two backends is a pair itself: a fleet moves between two services, so " +
				"give two")
		}
		s.name = cmp.Or(s.name, s.Guarantees().Backend)
		s.client = locker.New(s.Backend, &locker.Options{Prefix: s.prefix, TokenBase: s.base})
	}
	if g := b.Guarantees(); g.MaxTTL < g.MinTTL {
		return nil, invalid("%s and %s have no TTL in common: one can do none above %v, the other none below %v",
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
	// apartAtMost, or a TTL if that is shorter, may lie between the requests to the two services if there is a
	// MinHold. That of both counts from before the last of them, so each keeps its lock that much longer.
	apartAtMost = 10 * time.Second
)

// Queue implements [driver.Queue]: there is one if both have one. Callers wait inside Acquire, and one that asks
// during a release is then not refused.
func (b *Backend) Queue() bool {
	return driver.HasQueue(b.sides[0].Backend) && driver.HasQueue(b.sides[1].Backend)
}

// Guarantees are the promises of both: in each field the weaker one, and no shared locks.
func (b *Backend) Guarantees() locker.Guarantees {
	first, second := b.sides[0].Guarantees(), b.sides[1].Guarantees()
	return locker.Guarantees{
		Backend:           first.Backend + "+" + second.Backend,
		Scope:             min(first.Scope, second.Scope),
		Exclusion:         min(first.Exclusion, second.Exclusion),
		Fencing:           min(first.Fencing, second.Fencing),
		Shared:            locker.SharingNone, // whatever the two can do: the engine refuses Shared
		DeadHolder:        min(first.DeadHolder, second.DeadHolder),
		DeadHolderSlack:   max(first.DeadHolderSlack, second.DeadHolderSlack),
		ServerCrashes:     min(first.ServerCrashes, second.ServerCrashes),
		SurvivesRestart:   first.SurvivesRestart && second.SurvivesRestart,
		SurvivesFailover:  first.SurvivesFailover && second.SurvivesFailover,
		SurvivesClockJump: first.SurvivesClockJump && second.SurvivesClockJump,
		SurvivesPause:     first.SurvivesPause && second.SurvivesPause,
		MinTTL:            max(first.MinTTL, second.MinTTL),
		MaxTTL:            min(cmp.Or(first.MaxTTL, unbounded), cmp.Or(second.MaxTTL, unbounded)),
		MaxMinHold:        max(0, min(first.MaxMinHold, second.MaxMinHold)-apartAtMost),
		RestsOn: "both services, one after the other, while a fleet moves between them: of each promise this is " +
			"the weaker one; " +
			first.Backend + " rests on " + first.RestsOn + "; " + second.Backend + " rests on " + second.RestsOn,
	}
}

// Prompt returns true if both keep that promise.
func (b *Backend) Prompt() bool {
	for _, s := range b.sides {
		if p, ok := s.Backend.(driver.Prompt); !ok || !p.Prompt() {
			return false
		}
	}
	return true
}

// closing bounds how long Close waits for locks that were not released. The engine
// waits 1.5 seconds for Close.
const closing = 300 * time.Millisecond

// Close ends the attempts that wait, releases the locks that are still held, and closes both. A MinHold is
// left to the services; what they keep for as long as the process lasts is released when it is over.
func (b *Backend) Close() error {
	b.mu.Lock()
	held := b.held
	b.held = nil
	b.mu.Unlock()
	if held == nil {
		return nil
	}
	b.end()
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	var releases sync.WaitGroup
	for h, kept := range held {
		if time.Until(kept) <= 0 {
			releases.Go(func() { _ = h.Release(ctx) })
		} else {
			time.AfterFunc(time.Until(kept), h.undoEndless)
		}
	}
	go func() {
		releases.Wait()
		b.asking.Wait()
		cancel()
	}()
	<-ctx.Done() // a release that is late ends with its service
	errs := b.both(func(i int) error { return errors.Join(bare(b.sides[i].client.Close()), b.sides[i].Close()) })
	return errors.Join(errs[:]...)
}

// begin counts an attempt, which Close waits for; it returns false if the Backend is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held != nil {
		b.asking.Add(1)
	}
	return b.held != nil
}

// keep remembers a hold for Close, unless a MinHold keeps it longer that the services end; it returns false
// if the Backend is closed.
func (b *Backend) keep(h *hold, minHold time.Duration) bool {
	var kept time.Time
	if minHold > 0 {
		kept = time.Now().Add(minHold)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held != nil && (minHold == 0 || h.on[0].endless || h.on[1].endless) {
		b.held[h] = kept
	}
	return b.held != nil
}

func (b *Backend) forget(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, h)
}

// label is the label that the services store for a holder with both URLs. Of a long one it
// is the end, which says more: the process ID.
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

// fail adds to err on which service it happened.
func (s *side) fail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: bridge: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
