package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisnode"
)

// voidTime is how late a request may arrive and still be refused.
const voidTime = time.Minute

// Release implements [locker.Hold]: it removes the lock from all nodes that may
// have it, and returns when a quorum has confirmed that. The others go on in
// the background.
func (a *attempt) Release(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	a.mu.Lock()
	if a.gone {
		a.mu.Unlock()
		return fmt.Errorf("redlock: it was released before: %w", locker.ErrLost)
	}
	a.stage = given // from here on a late vote or repair is taken back
	a.watching = append(a.watching, changed)
	a.mu.Unlock()
	a.freeAll()
	timer := time.NewTimer(a.b.patience(a.claim.TTL))
	defer timer.Stop()
	for {
		done, enough, err := a.released()
		if done {
			return a.ended(err)
		}
		select {
		case <-changed:
			continue
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		case <-a.b.closing:
			return locker.ErrClosed
		}
		if enough {
			return a.ended(nil) // the rest is owed
		}
		return a.unreleased(err)
	}
}

// ended notes that nothing is left to release, if so.
func (a *attempt) ended(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = a.won && err == nil
	return err
}

// released reports whether it is known what came of a release; enough says
// that others can have the lock, if not whether it was there to the end.
func (a *attempt) released() (done, enough bool, err error) {
	was, wasNot, open := a.freed()
	n, quorum := len(a.seats), a.b.quorum
	switch {
	case !a.won:
		// A round that was not won: it is over when nothing of it can be left.
		return open == 0, false, nil
	case was >= quorum:
		return true, true, nil
	case wasNot > n-quorum:
		return true, true, fmt.Errorf("redlock: %d of %d nodes did not have it any more: %w", wasNot, n, locker.ErrLost)
	}
	enough = was+wasNot >= quorum
	return open == 0 && enough, enough, nil
}

// freed counts the nodes from which the key was removed, those that did not
// have it, and those that have not said.
func (a *attempt) freed() (was, wasNot, open int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.seats {
		switch s := &a.seats[i]; {
		case s.freed == yes:
			was++
		case s.freed == no, !s.may && s.vote != pending:
			wasNot++
		default:
			open++
		}
	}
	return was, wasNot, open
}

func (a *attempt) unreleased(ctxErr error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	causes := make([]error, len(a.seats))
	for i := range a.seats {
		if s := &a.seats[i]; s.freed != yes && s.freed != no && s.may {
			causes[i] = errNoAnswer
			if s.freed == failed && s.err != nil {
				causes[i] = s.err
			}
		}
	}
	err := a.b.quorumError("release", "", causes)
	if ctxErr != nil {
		return fmt.Errorf("%w: %w", ctxErr, err)
	}
	return err
}

// freeAll takes an attempt that failed back from every node that may have it,
// and does not wait. Nodes that have not answered yet are taken care of when
// they do, or when their time is up.
func (a *attempt) freeAll() {
	var nodes []int
	a.mu.Lock()
	for i := range a.seats {
		if s := &a.seats[i]; s.may && s.freed != yes && s.freed != no && s.freed != pending {
			nodes = append(nodes, i)
		}
	}
	a.mu.Unlock()
	for _, i := range nodes {
		a.free(i)
	}
}

// free removes the key from one node. Where the node does not answer, the
// release is owed to it.
func (a *attempt) free(i int) {
	v := a.b.voters[i]
	a.mu.Lock()
	s := &a.seats[i]
	if s.freed != yes {
		s.freed = pending
	}
	d := debt{claim: a.claim, until: time.Now().Add(a.claim.TTL)}
	if s.late {
		d.void = max(a.claim.TTL, voidTime)
	}
	a.mu.Unlock()
	v.release(d, func(st redisnode.State, err error) {
		a.mu.Lock()
		switch s := &a.seats[i]; {
		case s.freed == yes:
		case err != nil:
			s.freed, s.err = failed, err
		case st == redisnode.Mine:
			s.freed = yes
		default:
			s.freed = no
		}
		a.tell()
		a.mu.Unlock()
	})
}
