package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/refusal"
)

// kind is which abilities the good backend has, since a suite must be passed
// by poor and by rich ones.
type kind struct {
	name            string
	queued          bool // the service has a queue
	fenced          bool // leases have tokens
	notifies, tells bool // Notifier, Operator
	lasting         bool // SurvivesRestart and its like
	notices         bool // the service notices that a client has died
	sharing         driver.Sharing
	stores, ages    bool // it is a store with compare-and-swap, which knows how old records are
	hasty           bool // its driver calls a request unanswered just before its context ends
}

var (
	poor  = kind{name: "poor", sharing: locker.SharingTokenless}
	hasty = kind{name: "hasty", hasty: true}
	rich  = kind{name: "rich", fenced: true, notifies: true, tells: true, lasting: true,
		sharing: locker.SharingWithTokens}
	queued = kind{name: "queued", fenced: true, queued: true, tells: true, notices: true,
		sharing: locker.SharingWithTokens}
	// A service with a queue whose shared leases have no tokens, although others have.
	tokenless = kind{name: "tokenless", fenced: true, queued: true, tells: true,
		sharing: locker.SharingTokenless}
	// Package cas over a store: dead holders have to be watched, or are known by the age of the record.
	watched = kind{name: "watched", stores: true}
	aged    = kind{name: "aged", stores: true, ages: true}
)

// Guarantees are those of the kind.
func (c *client) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Backend:    "sim",
		Scope:      locker.ScopeNetwork,
		Exclusion:  locker.ExclusionServer,
		DeadHolder: locker.RecoveryAfterTTL,
		MinTTL:     10 * time.Millisecond,
		Shared:     c.kind.sharing,
		RestsOn:    "a map in the memory of this test",
	}
	if c.kind.fenced {
		g.Fencing = locker.FencingWhileKept
	}
	if c.kind.queued {
		g.Order = locker.OrderFIFO
	}
	if c.kind.notifies {
		g.MaxMinHold, g.MinHoldSlack = time.Hour, 100*time.Millisecond
	}
	if c.kind.notices {
		g.DeadHolder = locker.RecoveryAtOnce
	}
	if c.kind.lasting {
		g.Fencing = locker.FencingUnlessRewind
		g.SurvivesRestart, g.SurvivesFailover, g.SurvivesClockJump = true, true, true
		g.ServerCrashes = 1
	}
	switch c.flaw {
	case claimsEverything:
		g.RestsOn = ""
	case claimsAsk:
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = c.net.call(ctx, func() any { return nil })
	case claimsByMood:
		c.do(func() { g.ServerCrashes = len(c.clients) })
	case claimsNonsense:
		g = locker.Guarantees{Backend: "the sim", Order: 7, DeadHolderSlack: -1, MinTTL: time.Hour,
			MaxTTL: time.Minute}
	}
	return g
}

// backend is what the suite gets of the client: no more than its kind has.
func (c *client) backend() driver.Backend {
	b := bare{c}
	switch {
	case c.kind.stores:
		return newSwapping(c)
	case c.kind.notifies:
		return struct {
			bare
			driver.Notifier
			operator
		}{b, notifier{c}, operator{c}}
	case c.kind.tells:
		return struct {
			bare
			operator
		}{b, operator{c}}
	}
	return b
}

// bare has no abilities but those that say yes or no.
type bare struct{ c *client }

func (b bare) Guarantees() locker.Guarantees { return b.c.Guarantees() }
func (b bare) Close() error                  { return b.c.Close() }
func (b bare) Queue() bool                   { return b.c.kind.queued || b.c.flaw == claimsQueue }
func (b bare) Prompt() bool {
	return b.c.kind.notifies || b.c.flaw == promisesPrompt || b.c.flaw == promptLater
}

func (b bare) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := b.c.Acquire(ctx, req)
	switch {
	case b.c.flaw == grantsNothing && errors.Is(err, locker.ErrHeld):
		return driver.Grant{}, nil
	case b.c.flaw == refusesWhatItGrants && err == nil && req.Wait:
		grant.Refused = &driver.Refusal{}
	}
	if h, ok := grant.Hold.(*hold); ok && b.c.kind.queued {
		grant.Hold = sessionHold{h}
	} else if ok && b.c.kind.notifies {
		grant.Hold = passingHold{h}
	}
	if b.c.flaw == refusesByError {
		return grant, err
	}
	return refusal.Answer(grant, err)
}
