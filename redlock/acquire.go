package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisnode"
)

// labelMark stands between the owner and the label in a lock's value. The
// whole value is compared, so the label can say anything.
const labelMark = ":"

// roundMark stands between the owner and the number of the round.
const roundMark = "."

// How often a round is repeated that nobody won. The pause between two is
// random and grows, so that of two who split the votes one comes first.
const (
	splitRounds   = 10 // for those who do not wait; an even chance each is lost once in a thousand
	perhapsRounds = 3  // where the node that would tell does not answer
	waitRounds    = 100
	firstPause    = time.Millisecond
	lastPause     = 50 * time.Millisecond
)

// Acquire implements [locker.Backend].
func (b *Backend) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if b.isClosed() {
		return locker.Grant{}, locker.ErrClosed
	}
	if req.TTL > b.opts.MaxTTL {
		return locker.Grant{}, invalid("a TTL of %v is above the MaxTTL of %v, which the restart guard rests on", req.TTL, b.opts.MaxTTL)
	}
	own, patient := ownHolder(req.Owner), false
	for n := 0; ; n++ {
		// An owner of its own for each round: what is late of one never touches the key of the next (R10).
		a := b.newAttempt(redisnode.Claim{
			Name:   req.Name,
			Value:  req.Owner + roundMark + strconv.Itoa(n) + labelMark + req.Label,
			TTL:    req.TTL,
			Fenced: b.opts.Fencing,
			Keep:   b.opts.KeepTokens,
		}, own, req.Wait)
		a.patient = patient
		a.run(ctx)
		v := a.verdict()
		if err := b.twice(a); err != nil {
			a.freeAll()
			return locker.Grant{}, err
		}
		if v == won {
			return locker.Grant{
				Hold:     a,
				Validity: a.validity(a.since),
				Token:    a.claim.Token,
			}, nil
		}
		a.freeAll()
		if b.isClosed() {
			return a.doubt(), locker.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return a.doubt(), err
		}
		switch v {
		case heldByOne:
			return locker.Grant{}, a.heldError()
		case tooLate:
			return a.doubt(), a.unavailable(fmt.Sprintf("the answers took longer than a lease of %v is valid", req.TTL))
		case outOfReach:
			if patient || !a.healthy || !a.stalled() {
				return a.doubt(), a.unavailable("")
			}
			// Healthy until now: a stall of the network, or of this process. Once more, with more time.
			patient = true
			continue
		case perhaps:
			if n+1 >= perhapsRounds {
				return locker.Grant{}, a.heldError()
			}
		default:
			b.split.Add(1)
			if n+1 >= splitRounds && !req.Wait || n+1 >= waitRounds {
				return a.doubt(), a.unavailable(fmt.Sprintf("nobody won %d rounds of votes", n+1))
			}
		}
		if err := b.pause(ctx, n, time.Since(a.since)); err != nil {
			return a.doubt(), err
		}
	}
}

// validity is what a quorum that was asked at since has promised.
func (a *attempt) validity(since time.Time) locker.Validity {
	return locker.Validity{Since: since, TTL: a.claim.TTL, Drift: a.b.drift(a.claim.TTL)}
}

// twice reports that two nodes are one server. That is remembered from earlier
// looks: the others may be a quorum before this attempt's look has ended.
func (b *Backend) twice(a *attempt) error {
	for _, v := range b.voters {
		if d := v.twin.Load(); d != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.stage = given
			return fmt.Errorf("%w: redlock: %w", locker.ErrInvalid, d)
		}
	}
	return nil
}

// pause waits a random time after round n, which took so long.
func (b *Backend) pause(ctx context.Context, n int, took time.Duration) error {
	longest := min(max(firstPause, 2*took)<<min(n, 10), lastPause)
	timer := time.NewTimer(rand.N(longest) + firstPause/4)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closing:
		return locker.ErrClosed
	}
}

// doubt is what the engine is told of an attempt whose outcome is not known:
// something to release, if a request may still be under way. What a round left
// behind whose outcome is known has been sent for already.
func (a *attempt) doubt() locker.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.seats {
		if s := &a.seats[i]; s.late || s.vote == pending {
			return locker.Grant{Hold: a}
		}
	}
	return locker.Grant{}
}
