package cas

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// Options are the settings of a Backend. The zero value, or nil, means the defaults.
type Options struct {
	// Timeout is how long one request to the Store may take. 0: 5 s.
	Timeout time.Duration

	_ struct{}
}

const (
	defaultTimeout = 5 * time.Second
	defaultMinTTL  = 50 * time.Millisecond
	defaultValue   = 400_000
	maxMinHold     = 366 * 24 * time.Hour
	minHoldSlack   = time.Second
	slack          = 100 * time.Millisecond // of an observer, whose timers are imprecise
)

// New returns a [driver.Backend] on store. It does no I/O. Its Close closes store, if that is an
// [io.Closer]. The Backend is a [driver.Operator] and, if store is a [Watcher], a [driver.Notifier].
func New(store Store, opts *Options) (driver.Backend, error) {
	if store == nil {
		return nil, fmt.Errorf("cas: %w: the Store is nil", driver.ErrInvalid)
	}
	b := &backend{store: store, promises: store.Promises(), client: rand.Text(), looks: map[string]look{}}
	if opts != nil {
		b.timeout = opts.Timeout
	}
	if b.timeout < 0 {
		return nil, fmt.Errorf("cas: %w: Options.Timeout is %v", driver.ErrInvalid, b.timeout)
	}
	b.timeout = cmp.Or(b.timeout, defaultTimeout)
	b.closing, b.close = context.WithCancel(context.Background())
	if w, ok := store.(Watcher); ok {
		return &notifier{b, w}, nil
	}
	return b, nil
}

// backend turns a Store into a lock service.
type backend struct {
	store    Store
	promises Promises
	timeout  time.Duration
	client   string // marks this client's notes
	closing  context.Context
	close    context.CancelFunc

	mu     sync.Mutex
	closed bool
	asking sync.WaitGroup // requests; none is added once closed
	looks  map[string]look
	pruned time.Time // when old looks were last removed
}

var (
	_ driver.Operator    = (*backend)(nil)
	_ driver.Checker     = (*backend)(nil)
	_ driver.Notifier    = (*notifier)(nil)
	_ driver.TokenRaiser = (*hold)(nil)
)

// Guarantees implements [driver.Backend].
func (b *backend) Guarantees() driver.Guarantees { return b.promises.Guarantees() }

// Guarantees are those of the Backend of a Store with these Promises.
func (p Promises) Guarantees() driver.Guarantees {
	g := driver.Guarantees{
		Backend: p.Backend, Scope: p.Scope, Exclusion: p.Exclusion, Fencing: p.Fencing,
		ServerCrashes: p.ServerCrashes, SurvivesRestart: p.SurvivesRestart, SurvivesFailover: p.SurvivesFailover,
		Shared:            driver.SharingWithTokens,
		DeadHolder:        driver.RecoveryWatched,
		DeadHolderSlack:   slack,
		SurvivesClockJump: true,
		SurvivesPause:     true,
		MinTTL:            cmp.Or(p.MinTTL, defaultMinTTL),
		RestsOn:           p.RestsOn + "; clients' monotonic clocks run alike, to 1 %; nobody else writes or deletes the records",
	}
	if p.Ages {
		g.DeadHolder, g.SurvivesClockJump = driver.RecoveryAfterTTL, false
		g.MaxMinHold, g.MinHoldSlack = maxMinHold, minHoldSlack
		g.RestsOn += "; the clock of the service makes no step; a write that arrives late restarts the age of a record, " +
			"and keeps the lock of a dead holder, or what MinHold keeps, for up to a TTL longer"
	}
	return g
}

// look is a record as it was last read or written.
type look struct {
	record
	version string
	sight   sight
	mine    bool      // this client wrote it last, as far as it knows
	at      time.Time // when it was stored
}

// Looks are kept while a client goes on observing: for longer than the engine ever waits between
// requests, and at most twice as long.
const keepLooks = 3 * time.Minute

func (b *backend) last(key string) look {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.looks[key]
}

// saw stores l, or forgets it if there is nothing to observe.
func (b *backend) saw(key string, l look) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.at = time.Now()
	if l.at.Sub(b.pruned) > keepLooks {
		maps.DeleteFunc(b.looks, func(_ string, old look) bool { return l.at.Sub(old.at) > keepLooks })
		b.pruned = l.at
	}
	delete(b.looks, key)
	if len(l.sight) > 0 {
		b.looks[key] = l
	}
}

// ask makes a request to the store, bounded by ctx, the Timeout and Close.
func (b *backend) ask(ctx context.Context, request func(ctx context.Context) error) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return driver.ErrClosed
	}
	b.asking.Add(1)
	b.mu.Unlock()
	defer b.asking.Done()
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	defer context.AfterFunc(b.closing, cancel)()
	err := request(limited)
	if err == nil {
		return nil
	}
	cause := driver.ErrUnavailable
	switch {
	case ctx.Err() != nil && (!errors.Is(err, ErrUnwritten) || errors.Is(err, ctx.Err())):
		cause = ctx.Err()
	case b.closing.Err() != nil:
		cause = driver.ErrClosed
	case errors.Is(err, driver.ErrRefused), errors.Is(err, ErrConflict):
		return fmt.Errorf("%s: %w", b.promises.Backend, err)
	}
	return fmt.Errorf("%s: %w: %w", b.promises.Backend, cause, err)
}

// load reads the record of key.
func (b *backend) load(ctx context.Context, key string) (l look, err error) {
	var e Entry
	err = b.ask(ctx, func(ctx context.Context) (err error) {
		e, err = b.store.Load(ctx, key)
		return err
	})
	if err != nil {
		return l, err
	}
	now := time.Now() // after the reply: the beat may be that new
	if !b.promises.Ages {
		e.Age = 0
	}
	l.version = e.Version
	if l.record, err = decode(e.Value); err != nil {
		return l, fmt.Errorf("%s: %w", b.promises.Backend, err)
	}
	before := b.last(key)
	l.sight = before.sight.look(l.record, now, max(e.Age, 0))
	l.mine = before.mine && before.version == l.version
	b.saw(key, l)
	return l, nil
}

// edit is a change of a record.
type edit struct {
	key    string
	decide func(l look, now time.Time) (next record, write bool)
	fresh  bool  // a decision without a write needs the current record
	stores *hold // the hold that it creates or prolongs
}

// outcome is the outcome of an edit.
type outcome struct {
	since time.Time // before the successful write was sent
	late  bool      // a request may have written, or may still do so
}

const mostConflicts = 100

// change makes an edit, and repeats it while other clients write first.
func (b *backend) change(ctx context.Context, e edit) (o outcome, err error) {
	l := b.last(e.key)
	for try := range mostConflicts {
		if err := ctx.Err(); err != nil {
			return o, err
		}
		known := try == 0 && l.mine && !e.fresh
		if !known {
			if l, err = b.load(ctx, e.key); err != nil {
				return o, err
			}
		}
		next, write := e.decide(l, time.Now())
		switch {
		case !write && known:
			continue
		case !write:
			return o, nil
		}
		e.stores.sends()
		o.since = time.Now()
		var version string
		err = b.ask(ctx, func(ctx context.Context) (err error) {
			version, err = b.store.Swap(ctx, e.key, l.version, next.encode())
			return err
		})
		e.stores.sent()
		if err == nil {
			b.saw(e.key, look{record: next, version: version, sight: l.sight.look(next, time.Now(), 0), mine: true})
			return o, nil
		}
		l.mine = false
		b.saw(e.key, l)
		if !errors.Is(err, ErrConflict) {
			o.late = !errors.Is(err, ErrUnwritten)
			return o, err
		}
		if err := clock.Sleep(ctx, clock.UpTo(clock.BackOff(try, time.Millisecond, 50*time.Millisecond))); err != nil {
			return o, err
		}
	}
	return o, fmt.Errorf("%s: %w: %.60q was changed by others %d times, each time before this client could",
		b.promises.Backend, driver.ErrUnavailable, e.key, mostConflicts)
}

// Acquire implements [driver.Backend].
func (b *backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	h := &hold{b: b, req: req}
	w := want{entry{Owner: req.Owner, Client: b.client, Label: req.Label, Shared: req.Shared,
		Lasts: max(req.TTL, req.MinHold)}, req.Wait, b.promises.Ages}
	var v verdict
	o, err := b.change(ctx, edit{key: req.Name, fresh: true, stores: h,
		decide: func(l look, now time.Time) (next record, write bool) {
			next, v, write = l.acquire(w, l.sight, now)
			switch {
			case v.granted && (v.token > driver.MaxToken || req.Shared && len(next.encode()) > b.mostBytes()):
				v, write = verdict{full: max(len(next.Holders)-1, 1)}, false
			case v.note != "" && write && len(next.encode()) > b.mostBytes()*13/12: // two more notes and renewals must fit
				v.note, write = "", false
			}
			return next, write
		}})
	switch {
	case err != nil && o.late:
		return driver.Grant{Hold: h}, err
	case err != nil:
		return driver.Grant{}, err
	case v.granted:
		h.granted(time.Now())
		return driver.Grant{Hold: h, Validity: driver.Validity{Since: o.since, TTL: req.TTL}, Token: v.token}, nil
	case v.full > 0:
		return driver.Grant{}, fmt.Errorf("%s: %w: %d have %.60q, and there is no room, or no token, for another",
			b.promises.Backend, driver.ErrRefused, v.full, req.Name)
	}
	held := &driver.Refusal{Remaining: v.left}
	if v.note != "" {
		held.AskWithin = askWithin
		held.Leave = func(ctx context.Context) error {
			return b.remove(ctx, req.Name, func(e entry) bool { return e.Owner == v.note && e.Client != "" })
		}
	}
	return driver.Grant{Refused: held}, nil
}

// mostBytes leaves room for what renewals and notes add to a record.
func (b *backend) mostBytes() int { return cmp.Or(b.promises.MaxValue, defaultValue) * 3 / 4 }

// remove removes the entries for which gone is true.
func (b *backend) remove(ctx context.Context, key string, gone func(entry) bool) error {
	_, err := b.change(ctx, edit{key: key, decide: func(l look, now time.Time) (next record, write bool) {
		return l.remove(gone, l.sight, now)
	}})
	return err
}

// Inspect implements [driver.Operator].
func (b *backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	l, err := b.load(ctx, name)
	if err != nil {
		return driver.State{}, err
	}
	return l.state(name, l.sight, time.Now()), nil
}

// List implements [driver.Operator]. It reads every record with the prefix, because records of free
// names stay.
func (b *backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		var keys []string
		err := b.ask(ctx, func(ctx context.Context) error {
			for key, err := range b.store.List(ctx, prefix) {
				if err != nil {
					return err
				}
				if strings.HasPrefix(key, prefix) {
					keys = append(keys, key)
				}
			}
			return nil
		})
		for _, key := range keys { // also after an incomplete listing
			st, failed := b.Inspect(ctx, key)
			if failed != nil {
				err = cmp.Or(err, failed)
				break
			}
			if st.Held && !yield(st, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.State{}, err)
		}
	}
}

// Break implements [driver.Operator].
func (b *backend) Break(ctx context.Context, st driver.State) error {
	if st.Holder != "" && !strings.HasPrefix(st.Holder, "cas ") {
		return fmt.Errorf("%w: %q is no Holder of this backend", driver.ErrInvalid, st.Holder)
	}
	return b.remove(ctx, st.Name, func(e entry) bool { return e.Client == "" && e.holder() == st.Holder })
}

// Check implements [driver.Checker], if the Store does.
func (b *backend) Check(ctx context.Context) (all []driver.Finding, err error) {
	c, ok := b.store.(driver.Checker)
	if !ok {
		return nil, fmt.Errorf("%s: the service cannot be checked: %w", b.promises.Backend, errors.ErrUnsupported)
	}
	err = b.ask(ctx, func(ctx context.Context) (err error) {
		all, err = c.Check(ctx)
		return err
	})
	return all, err
}

// Close implements [driver.Backend].
func (b *backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	b.close()
	b.asking.Wait()
	if c, ok := b.store.(io.Closer); ok && first {
		return c.Close()
	}
	return nil
}

// notifier is a backend whose store reports changes.
type notifier struct {
	*backend
	watcher Watcher
}

// Notify implements [driver.Notifier]. Every change wakes; asking shows whether the name is free.
func (n *notifier) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	err = n.ask(ctx, func(ctx context.Context) (err error) {
		stop, err = n.watcher.Watch(ctx, name, wake)
		return err
	})
	return stop, err
}
