package locker

import (
	"context"
	"iter"
	"time"
)

// sharing is what a line has while its callers hold the name together. Each of them asks
// the service for itself. The first sharer of a run asks at the head of the line, and
// waits in the service. Once it has a lease, the next call is at the head; if that is a
// sharer, too, the sharers who directly follow ask beside it, all at once and without a
// wait. One that gets nothing then, as when a writer of another client has come, goes back
// to its place: so still only one of a client waits in the service (R13).
type sharing struct {
	leases  map[*Lease]struct{}
	joining map[*call]struct{}
}

// shares returns the sharing of ln, a new one if there is none. The caller holds ls.mu.
func (ls *lines) shares(ln *line) *sharing {
	sh := ls.sharing[ln]
	if sh == nil {
		if ls.sharing == nil {
			ls.sharing = make(map[*line]*sharing)
		}
		sh = &sharing{leases: make(map[*Lease]struct{}), joining: make(map[*call]struct{})}
		ls.sharing[ln] = sh
	}
	return sh
}

// joins reports whether a sharer may ask beside the head: if the head is a sharer, too,
// and the service has refused nobody since it gave the last lease. Before there is a
// lease, only those may who do not wait (atOnce).
func (ls *lines) joins(ln *line, atOnce bool) bool {
	sh := ls.sharing[ln]
	return ln.asking.settings.shared && ln.state == nil && !ls.full(ln) &&
		(atOnce || sh != nil && len(sh.leases) > 0 && len(sh.joining) < maxJoining)
}

// maxJoining is how many sharers who wait ask beside the head at once: a service that refuses
// one refuses all of them, and each goes back to its place among so many.
const maxJoining = 64

// full reports whether as many of this client hold ln together, or ask to, as can. One more
// waits here, since the service would refuse it. The caller holds ls.mu.
func (ls *lines) full(ln *line) bool {
	sh := ls.sharing[ln]
	if sh == nil {
		return false
	}
	n := len(sh.leases) + len(sh.joining)
	if ln.asking != nil {
		n++
	}
	return n >= MaxSharers
}

// joined ends the call of a sharer that has its lease, and lets those ask who follow it.
func (ls *lines) joined(cl *call) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	cl.line.state, cl.line.away = nil, time.Time{}
	ls.remove(cl)
}

// again brings cl, which has asked beside the head in vain, back to its place in line, and
// returns nil when it may ask once more.
func (ls *lines) again(ctx context.Context, cl *call) error {
	ls.mu.Lock()
	ln := cl.line
	delete(ls.sharing[ln].joining, cl)
	before := (*call)(nil)
	for after := ln.first; after != nil && after.turn < cl.turn; after = after.after {
		before = after
	}
	ln.push(cl, before)
	ls.admit(ln)
	ls.mu.Unlock()
	return ls.await(ctx, cl)
}

// ask yields the calls of ln that ask the service. The caller holds ls.mu.
func (ls *lines) ask(ln *line) iter.Seq[*call] {
	return func(yield func(*call) bool) {
		if ln.asking != nil && !yield(ln.asking) {
			return
		}
		if sh := ls.sharing[ln]; sh != nil {
			for cl := range sh.joining {
				if !yield(cl) {
					return
				}
			}
		}
	}
}

// sharerKey is the key under which the context of a shared lease has the lease.
type sharerKey struct {
	client *Client
	name   string
}

// upgrade returns an error if cl, with the context of a shared lease on its name, asks
// for the name alone: it would wait for itself. The caller holds ls.mu.
func (ls *lines) upgrade(ctx context.Context, ln *line, cl *call) error {
	sh := ls.sharing[ln]
	if sh == nil || cl.settings.shared {
		return nil
	}
	l, _ := ctx.Value(sharerKey{cl.client, cl.name}).(*Lease)
	if _, held := sh.leases[l]; !held {
		return nil
	}
	return invalid("the context is that of a shared lease on this name, which cannot become one that is held " +
		"alone: two that tried would wait for each other; unlock it first")
}
