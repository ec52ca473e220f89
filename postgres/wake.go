package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/golockers/locker/internal/wake"
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

// neverIdleSQL keeps a server with idle_session_timeout (since 14) from ending a connection that only
// listens.
const neverIdleSQL = `SELECT set_config(name, '0', false)
FROM pg_settings WHERE name = 'idle_session_timeout'`

var errDeaf = errors.New("NOTIFY is not heard: a proxy between here and the server, " +
	"such as pgbouncer in transaction mode, does not pass it on; waiters ask again and again instead")

// Notify implements [driver.Notifier]. It returns when the connection hears; until then, and where it never
// does, the engine asks from time to time.
func (b *Backend) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	if stop, err = b.wakes.Notify(ctx, name, wake); err != nil {
		err = b.failure(ctx, err)
	}
	return stop, err
}

// pause is how long it takes until the connection for wake-ups is opened again. Deafness is told once.
func (b *Backend) pause() func(any, error, int) time.Duration {
	warned := false
	return func(_ any, err error, _ int) time.Duration {
		if !errors.Is(err, errDeaf) {
			return reconnectTime
		}
		if !warned {
			warned = true
			b.opts.Logger.Warn("postgres: waiters are not told when a lock is free",
				"server", b.addr, "error", err)
		}
		return deafTime
	}
}

// ear is the connection that listens for all names. It is none of the pool's, which may be small.
type ear struct {
	b    *Backend
	conn *pgx.Conn
}

// Next implements [wake.Conn].
func (e *ear) Next(ctx context.Context) (wake.Event, error) {
	for {
		n, err := e.conn.WaitForNotification(ctx)
		if err != nil {
			return wake.Event{}, err
		}
		// A table of that name in another schema has the same channel.
		schema, text, ok := strings.Cut(n.Payload, "/")
		name, err := hex.DecodeString(text)
		if found := e.b.found.Load(); ok && err == nil && (found == nil || found.schemaName == schema) {
			return wake.Event{Name: string(name)}, nil
		}
	}
}

// Close implements [wake.Conn].
func (e *ear) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = e.conn.Close(ctx)
}

// listen makes a connection that has heard a message which came by way of the pool.
func (b *Backend) listen(ctx context.Context, _ any) (wake.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	pool := b.pool.Config()
	config := pool.ConnConfig
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err = b.probe(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return &ear{b, conn}, nil
}

func (b *Backend) probe(ctx context.Context, conn *pgx.Conn) error {
	text := rand.Text()
	_, err := conn.Exec(ctx, `LISTEN "`+b.table+`"; `+neverIdleSQL, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	_, err = b.ask(ctx, func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", b.table, text)
		return err
	})
	if err != nil {
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
