package redlock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/redisnode"
)

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
	busyStalls    = 10 // see outOfReach
)

// maxRounds bounds the rounds of votes of one Backend that are under way. Callers
// beyond it wait for their turn until their context ends: too much work is not an
// outage (R21), and a lease counts from its own round.
const maxRounds = 512

// Acquire implements [driver.Backend]: rounds of votes, until one is won or another
// makes no sense. The steps are those of the package documentation.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if longest := max(req.TTL, req.MinHold); longest > b.opts.MaxTTL {
		return driver.Grant{}, invalid("a TTL or MinHold of %v is above the MaxTTL of %v, which the restart "+
			"guard rests on", longest, b.opts.MaxTTL)
	}
	stalls := 0
	var asking time.Duration // how long the rounds took
	var earlier []*hold      // what rounds may have left that were enough to keep others out
	for n := 0; ; n++ {
		if err := b.enter(ctx); err != nil {
			return remaining(earlier), err
		}
		// An owner of its own for each round: what is late of one never touches the key of the next (R10).
		h := &hold{b: b, ttl: req.TTL, lasts: max(req.TTL, req.MinHold), minHold: req.MinHold, waits: req.Wait,
			keys:   redisnode.KeysOf(req.Name, req.Owner, roundMark+strconv.Itoa(n)+redisnode.LabelMark, req.Label),
			places: make([]place, len(b.nodes))}
		r := b.newRound(h, stalls > 0)
		result := r.run(ctx)
		asking += time.Since(h.since)
		busy := len(b.rounds) > maxRounds/4
		b.leave()
		err := b.twice()
		if err == nil && result == won {
			h.before = uncertain(earlier)
			return driver.Grant{Hold: h, Validity: h.validity(), Token: h.token}, nil
		}
		if result == won {
			h.giveUp()
		}
		all := append(slices.Clip(earlier), h)
		switch {
		case err != nil:
			return remaining(all), err
		case b.isClosed():
			return remaining(all), driver.ErrClosed
		case ctx.Err() != nil:
			return remaining(all), ctx.Err()
		}
		switch result {
		case heldByOne:
			return driver.Grant{Refused: r.refusal(remaining(earlier).Hold)}, nil
		case tooLate:
			return remaining(all), r.unavailable(fmt.Sprintf("the answers took longer than a lease of %v is valid", req.TTL))
		case outOfReach:
			// Healthy until now: a stall of the network, or of this process. Once more,
			// with more time; and more often where there is much to do (R21).
			most := 1
			if busy {
				most = busyStalls
			}
			if stalls++; stalls > most || !r.healthy && !busy || !r.stalled() {
				return remaining(all), r.unavailable("")
			}
			earlier = uncertain(all)
			continue
		case perhaps:
			// A node that was slow lately is given longer, and then once is enough; but not because of a first
			// look at a server, which may take a while, too.
			enough := perhapsRounds * r.limit
			if r.looked.Load() {
				enough += longestLook
			}
			if n+1 >= perhapsRounds || asking > enough {
				return driver.Grant{Refused: r.refusal(remaining(earlier).Hold)}, nil
			}
		default:
			if n+1 >= splitRounds && !req.Wait || n+1 >= waitRounds {
				return remaining(all), r.unavailable(fmt.Sprintf("nobody won %d rounds of votes", n+1))
			}
			earlier = uncertain(all)
		}
		longest := min(max(firstPause, 2*time.Since(h.since))<<min(n, 10), lastPause)
		if err := clock.Sleep(ctx, clock.UpTo(longest)+firstPause/4); err != nil {
			return remaining(all), err
		}
	}
}

// uncertain drops the holds of which no node can have anything.
func uncertain(holds []*hold) []*hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h *hold) bool { return !h.uncertain() })
}

// remaining is what the engine is told in the end of rounds that were not won: something to take back, if it is not
// known what a node may have.
func remaining(holds []*hold) (g driver.Grant) {
	if all := uncertain(holds); len(all) > 0 {
		last := all[len(all)-1]
		last.before = all[:len(all)-1]
		g.Hold = last
	}
	return g
}

// enter waits for a place among the rounds under way.
func (b *Backend) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case b.rounds <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.ctx.Done():
	}
	if b.isClosed() {
		return driver.ErrClosed
	}
	return nil
}

func (b *Backend) leave() { <-b.rounds }

// twice reports that two nodes are one server. That is remembered from earlier
// looks: the others may be a quorum before this round's look has ended.
func (b *Backend) twice() error {
	for _, n := range b.nodes {
		if d := n.twin.Load(); d != nil {
			return fmt.Errorf("%w: redlock: %w", driver.ErrInvalid, d)
		}
	}
	return nil
}
