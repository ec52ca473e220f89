package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

const (
	// probeTime is how long a message of our own may take until it is heard.
	probeTime = 2 * time.Second
	// lingerTime is how long the connection stays that nobody needs.
	lingerTime = 10 * time.Second
	// reconnectTime and deafTime are the pauses after a connection that failed, and after one that proved
	// to be deaf.
	reconnectTime = 500 * time.Millisecond
	deafTime      = time.Minute
)

// neverIdleSQL keeps a server with idle_session_timeout (since 14) from ending a connection that only listens.
const neverIdleSQL = `SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'`

// errDeaf is why there are no wake-ups.
var errDeaf = errors.New("NOTIFY is not heard: a proxy between here and the server, such as pgbouncer in transaction mode, " +
	"does not pass it on; waiters ask again and again instead")

// ears are the one connection that listens for all names. It is opened for the first waiter, and closed when
// nobody has waited for a while. It is none of the pool's, which may be small.
type ears struct {
	b *Backend

	mu     sync.Mutex
	wakes  map[string]map[*waiter]struct{} // by name
	heard  chan struct{}                   // closed when the connection has proved to hear; nil: there is none
	hangUp context.CancelFunc              // ends it
	idle   *time.Timer                     // calls hangUp
	warned bool
}

// waiter is one call of Notify.
type waiter struct{ wake func() }

// Notify implements [locker.Notifier]. It returns when the connection hears; until then, and where it never
// does, the engine asks from time to time.
func (b *Backend) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	e, w := &b.ears, &waiter{wake}
	e.mu.Lock()
	if e.wakes == nil {
		e.wakes = make(map[string]map[*waiter]struct{})
	}
	if e.wakes[name] == nil {
		e.wakes[name] = make(map[*waiter]struct{})
	}
	e.wakes[name][w] = struct{}{}
	if e.idle != nil {
		e.idle.Stop()
	}
	if e.heard == nil {
		e.heard = make(chan struct{})
		b.background(e.run)
	}
	heard := e.heard
	e.mu.Unlock()
	stop = func() { e.leave(name, w) }
	select {
	case <-heard:
		return stop, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-b.life.Done():
		err = locker.ErrClosed
	}
	stop()
	return nil, b.failure(ctx, err)
}

func (e *ears) leave(name string, w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.wakes[name], w)
	if len(e.wakes[name]) == 0 {
		delete(e.wakes, name)
	}
	if len(e.wakes) == 0 && e.hangUp != nil {
		e.idle = time.AfterFunc(lingerTime, e.hangUp)
	}
}

// run listens for as long as somebody waits, on one connection after the other.
func (e *ears) run() {
	for e.needed() {
		ctx, cancel := context.WithCancel(e.b.life)
		conn, err := e.open(ctx)
		if err == nil {
			e.hears(cancel)
			for err == nil {
				err = e.next(ctx, conn)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = conn.Close(ctx)
			cancel()
		}
		cancel()
		e.rest(err)
	}
}

// needed reports whether somebody waits; if not, the next waiter begins anew.
func (e *ears) needed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.wakes) > 0 && e.b.life.Err() == nil {
		return true
	}
	e.heard = nil
	return false
}

// hears tells those who wait for the connection, and those who have waited longer, since something may have
// been missed while there was none.
func (e *ears) hears(hangUp context.CancelFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hangUp = hangUp
	close(e.heard)
	for _, waiters := range e.wakes {
		wake(waiters)
	}
	if len(e.wakes) == 0 {
		e.idle = time.AfterFunc(lingerTime, hangUp)
	}
}

// next waits for a message and tells those whom it is for.
func (e *ears) next(ctx context.Context, conn *pgx.Conn) error {
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return err
	}
	// A table of that name in another schema has the same channel.
	schema, text, ok := strings.Cut(n.Payload, "/")
	name, err := hex.DecodeString(text)
	if found := e.b.found.Load(); ok && err == nil && (found == nil || found.schemaName == schema) {
		e.mu.Lock()
		defer e.mu.Unlock()
		wake(e.wakes[string(name)])
	}
	return nil
}

func wake(waiters map[*waiter]struct{}) {
	for w := range waiters {
		w.wake()
	}
}

// rest comes after a connection.
func (e *ears) rest(err error) {
	e.mu.Lock()
	e.hangUp = nil
	select {
	case <-e.heard:
		e.heard = make(chan struct{}) // of the next one
	default:
	}
	pause := reconnectTime
	if errors.Is(err, errDeaf) {
		pause = deafTime
		if !e.warned {
			e.warned = true
			e.b.opts.Logger.Warn("postgres: waiters are not told when a lock is free", "server", e.b.addr, "error", err)
		}
	}
	needed := len(e.wakes) > 0
	e.mu.Unlock()
	if needed {
		_ = clock.Sleep(e.b.life, clock.Jitter(pause)) // needed looks why it ended
	}
}

// open makes a connection that has heard a message which came by way of the pool.
func (e *ears) open(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.b.opts.Timeout)
	defer cancel()
	pool := e.b.pool.Config()
	config := pool.ConnConfig
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	config.DialFunc = keepAlive(config.DialFunc)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err = e.probe(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

func (e *ears) probe(ctx context.Context, conn *pgx.Conn) error {
	text := rand.Text()
	if _, err := conn.Exec(ctx, `LISTEN "`+e.b.table+`"`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, neverIdleSQL, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if _, err := e.b.pool.Exec(ctx, "SELECT pg_notify($1, $2)", e.b.table, text); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil && n.Payload == text:
			return nil
		case err != nil && ctx.Err() != nil:
			return errDeaf
		case err != nil:
			return err
		}
	}
}
