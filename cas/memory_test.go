package cas_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
)

// service is a store in memory, which its clients reach over lines.
type service struct {
	ages   bool
	bytes  int    // that a record may have; 0: any
	flaw   string // what it does wrong
	mu     sync.Mutex
	rows   map[string]row
	writes int
	ears   map[*func()]string // the keys that they listen to
}

type row struct {
	cas.Entry
	before cas.Entry
	at     time.Time
}

// What a service does wrong.
const (
	repeats       = "repeats what was not answered, and tells the answer to that"
	loadsStale    = "loads what was before"
	versionsAgain = "a version comes back"
	creatorsWin   = "two creators both win"
	keysMeet      = "keys meet"
)

func newService(ages bool) *service {
	return &service{ages: ages, rows: map[string]row{}, ears: map[*func()]string{}}
}

func (s *service) load(key string) cas.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[s.key(key)]
	if s.flaw == loadsStale {
		return r.before
	}
	if s.ages && r.Version != "" {
		r.Age = time.Since(r.at)
	}
	return r.Entry
}

func (s *service) key(key string) string {
	if s.flaw == keysMeet {
		return strings.ToLower(key)
	}
	return key
}

func (s *service) swap(key, version string, value []byte) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key = s.key(key)
	before := s.rows[key].Entry
	switch {
	case before.Version != version && (version != "" || s.flaw != creatorsWin):
		return "", cas.ErrConflict
	case s.bytes > 0 && len(value) > s.bytes:
		return "", fmt.Errorf("%w: %d bytes", cas.ErrUnwritten, len(value))
	}
	if s.writes++; s.flaw == versionsAgain {
		s.writes %= 90
	}
	version = strconv.Itoa(s.writes)
	s.rows[key] = row{cas.Entry{Value: slices.Clone(value), Version: version}, before, time.Now()}
	s.told(key)
	return version, nil
}

func (s *service) told(key string) {
	for ear, listens := range s.ears {
		if listens == key {
			go (*ear)()
		}
	}
}

func (s *service) delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, s.key(key))
	s.told(key)
}

// line is a client of the service, and the connection between them, which can be broken.
type line struct {
	*service
	mu                sync.Mutex
	changed           chan struct{} // closed when a mode is set
	requests, replies conformance.Mode
	conn, open        int // the connection, and the last one that was open when HoldOpen was set
	sent              int64
	closed, repeats   bool
	tells             []func() // of Watch
}

func (s *service) line() *line { return &line{service: s, changed: make(chan struct{})} }

func (l *line) set(mode *conformance.Mode, to conformance.Mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*mode, l.open = to, l.conn
	close(l.changed)
	l.changed = make(chan struct{})
	for _, tell := range l.tells { // it may have missed something
		go tell()
	}
}

func (l *line) Requests(m conformance.Mode) { l.set(&l.requests, m) }
func (l *line) Replies(m conformance.Mode)  { l.set(&l.replies, m) }

func (l *line) Sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

var errReset = errors.New("connection reset")

// pass returns true when what travels on a connection has arrived, and false if it never does.
func (l *line) pass(mode *conformance.Mode, conn int) (bool, error) {
	for {
		l.mu.Lock()
		m, changed, open := *mode, l.changed, l.open
		l.mu.Unlock()
		switch {
		case m == conformance.Reset:
			return false, errReset
		case m == conformance.Drop:
			return false, nil
		case m == conformance.Hold, m == conformance.HoldOpen && conn <= open:
			<-changed
			continue
		}
		time.Sleep(50 * time.Microsecond)
		return true, nil
	}
}

// call makes a request that is carried out even if its sender has given up.
func (l *line) call(ctx context.Context, do func()) error {
	if err := ctx.Err(); err != nil {
		return errors.Join(err, cas.ErrUnwritten)
	}
	l.mu.Lock()
	l.sent++
	conn := l.conn
	l.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		ok, err := l.pass(&l.requests, conn)
		if ok {
			do()
			ok, err = l.pass(&l.replies, conn)
		}
		if ok || err != nil {
			done <- err
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done(): // what comes next is on another connection
		l.mu.Lock()
		l.conn = max(l.conn, conn+1)
		l.mu.Unlock()
		return ctx.Err()
	}
}

func (l *line) Load(ctx context.Context, key string) (cas.Entry, error) {
	var e cas.Entry
	reply := make(chan cas.Entry, 1)
	err := l.call(ctx, func() { reply <- l.load(key) })
	if err == nil {
		e = <-reply
	}
	return e, err
}

func (l *line) Swap(ctx context.Context, key, version string, value []byte) (string, error) {
	for l.repeats {
		try, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		next, err := l.swapOnce(try, key, version, value)
		if cancel(); err == nil || errors.Is(err, cas.ErrConflict) || ctx.Err() != nil {
			return next, err
		}
	}
	return l.swapOnce(ctx, key, version, value)
}

func (l *line) swapOnce(ctx context.Context, key, version string, value []byte) (string, error) {
	type answer struct {
		version string
		err     error
	}
	reply := make(chan answer, 1)
	err := l.call(ctx, func() {
		version, err := l.swap(key, version, value)
		reply <- answer{version, err}
	})
	if err != nil {
		return "", err
	}
	a := <-reply
	return a.version, a.err
}

func (l *line) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		reply := make(chan []string, 1)
		err := l.call(ctx, func() {
			l.service.mu.Lock()
			defer l.service.mu.Unlock()
			reply <- slices.Collect(maps.Keys(l.rows))
		})
		if err != nil {
			yield("", err)
			return
		}
		for _, key := range <-reply {
			if strings.HasPrefix(key, prefix) && !yield(key, nil) {
				return
			}
		}
	}
}

func (l *line) Promises() cas.Promises {
	return cas.Promises{Backend: "memory", Scope: driver.ScopeNetwork, Exclusion: driver.ExclusionServer,
		Fencing: driver.FencingWhileKept, Ages: l.ages, MaxValue: l.bytes, RestsOn: "the memory of one process"}
}

func (l *line) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("closed twice")
	}
	l.closed = true
	return nil
}

// watching is a line over which the service tells of changes.
type watching struct{ *line }

func (w watching) Watch(ctx context.Context, key string, changed func()) (stop func(), err error) {
	tell := func() {
		w.mu.Lock()
		well := w.replies == conformance.Pass
		w.mu.Unlock()
		if well {
			changed()
		}
	}
	w.mu.Lock()
	w.tells = append(w.tells, tell)
	w.mu.Unlock()
	err = w.call(ctx, func() {
		w.service.mu.Lock()
		defer w.service.mu.Unlock()
		w.ears[&tell] = key
	})
	return func() {
		w.service.mu.Lock()
		defer w.service.mu.Unlock()
		delete(w.ears, &tell)
	}, err
}
