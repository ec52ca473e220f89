package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/batch"
	"github.com/golockers/locker/internal/sqlstate"
	"github.com/golockers/locker/internal/wake"
)

// Options are the settings of a [Backend]. The zero value, or nil, means the defaults. All clients whose
// locks are to meet need the same Table in the same database.
type Options struct {
	// Table is the table of locks, with or without its schema. "": locker_locks (DefaultTable). Name the
	// schema where users differ in their search_path, or their locks do not meet. Beside it is a sequence,
	// whose name is the table's and _tokens, for tokens that were raised.
	Table string

	// NoCreate: the table and the sequence are not made on first use. Make them with what Schema returns.
	// Whatever it says, a client that has found the table does not make it again.
	NoCreate bool

	// FailoverSafe says that a fail-over only ever goes to a standby that synchronous_standby_names has. The
	// backend then declares that a held lock survives it. It believes no grant and no renewal before it has
	// seen in pg_stat_replication that each of these standbys has it, also where the server waits for some of
	// them only (ANY 1, FIRST 1), for which the user needs the rights of pg_read_all_stats; without them,
	// nothing is granted. While synchronous_standby_names is empty, or has a * instead of names, new locks
	// are refused, with an error that matches ErrUnavailable. Leases go on then only on a server that has
	// taken over and never had a standby since.
	FailoverSafe bool

	// Timeout is how long a request waits for its answer, its wait for a connection of the pool included.
	// 0: 5 s.
	Timeout time.Duration

	// Logger is told if wake-ups do not get through. nil: nothing is logged.
	Logger *slog.Logger

	_ struct{}
}

// DefaultTable is the table that locks are in.
const DefaultTable = "locker_locks"

// MinTTL is the shortest TTL. With a shorter one, a lease would be spent on the network and the disk.
const MinTTL = 100 * time.Millisecond

const (
	defaultTimeout = 5 * time.Second
	sweepEvery     = 10 * time.Minute
)

// Backend is one PostgreSQL as a lock service. Make it with [New] or [Open].
type Backend struct {
	pool  *pgxpool.Pool
	most  int32 // connections of the pool
	owned bool  // Open made the pool: Close closes it
	addr  string
	opts  Options
	wakes *wake.Wakes

	schema, table string                     // as Options.Table names it
	found         atomic.Pointer[statements] // for the table that this means; nil: not known
	known         atomic.Bool                // it was found once
	timeline      atomic.Pointer[string]     // of the server, when a standby last confirmed something

	acquires, joins *batch.Batcher[request, grant]
	refused         names
	renewals        *batch.Batcher[request, fate]
	releases        [kinds]*batch.Batcher[request, fate]

	life context.Context // ends with Close
	stop context.CancelFunc
	busy sync.WaitGroup // sweeps

	mu    sync.Mutex
	swept time.Time
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Notifier = (*Backend)(nil)
	_ driver.Prompt   = (*Backend)(nil)
	_ driver.Operator = (*Backend)(nil)
	_ driver.Checker  = (*Backend)(nil)

	_ driver.TokenRaiser = (*hold)(nil)
	_ driver.Aser        = (*hold)(nil)
)

// New returns a Backend on pool, which stays its caller's: Close does not close it. New does no I/O. A
// pool of its own (of four connections, say) keeps the locks alive while the program's transactions have
// all connections of theirs. So a program on database/sql makes one beside its DB, with the same URL:
//
//	pool, err := pgxpool.New(ctx, databaseURL)
func New(pool *pgxpool.Pool, opts *Options) (*Backend, error) {
	b := &Backend{pool: pool}
	if opts != nil {
		b.opts = *opts
	}
	o := &b.opts
	switch {
	case pool == nil:
		return nil, invalid("the pool is nil")
	case o.Timeout < 0 || o.Timeout > 0 && o.Timeout < time.Millisecond:
		return nil, invalid("Options.Timeout is %v: give at least 1ms, or 0 for %v",
			o.Timeout, defaultTimeout)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Table == "" {
		o.Table = DefaultTable
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	config := pool.Config()
	conn := config.ConnConfig
	b.most = config.MaxConns
	b.addr = net.JoinHostPort(conn.Host, strconv.Itoa(int(conn.Port))) + "/" + conn.Database
	var err error
	if b.schema, b.table, err = parse(o.Table); err != nil {
		return nil, err
	}
	b.life, b.stop = context.WithCancel(context.Background())
	b.wakes = wake.New(b.life, wake.Options{Open: b.listen, Linger: lingerTime, Pause: b.pause()})
	b.acquires = batch.New(b.life, b.bounds(64), request.key, b.acquire)
	b.joins = batch.New(b.life, b.bounds(besideMost), request.key, b.acquire)
	b.renewals = batch.New(b.life, b.bounds(64), request.key, b.sendRenewals)
	for kind := range kinds {
		b.releases[kind] = batch.New(b.life, b.bounds(64), request.key, b.sendReleases)
	}
	return b, nil
}

// Guarantees says what one PostgreSQL promises: see the package documentation.
func (b *Backend) Guarantees() driver.Guarantees { return Guarantees(&b.opts) }

// Guarantees says what a Backend with these options promises.
func Guarantees(opts *Options) driver.Guarantees {
	g := driver.Guarantees{
		Backend:         "postgres",
		Scope:           driver.ScopeNetwork,
		Exclusion:       driver.ExclusionServer,
		Fencing:         driver.FencingUnlessRewind,
		Shared:          driver.SharingWithTokens,
		DeadHolder:      driver.RecoveryAfterTTL,
		MaxMinHold:      366 * 24 * time.Hour, // a row stays for as long as it is told to
		MinHoldSlack:    time.Second,
		DeadHolderSlack: 100 * time.Millisecond,
		SurvivesRestart: true,
		SurvivesPause:   true,
		MinTTL:          MinTTL,
		RestsOn: "one PostgreSQL: it keeps what it has committed (fsync), its wall clock makes no step, " +
			"and there is no fail-over to a standby that may be behind; tokens: nobody restores a backup",
	}
	if opts != nil && opts.FailoverSafe {
		g.SurvivesFailover = true
		g.RestsOn = "one PostgreSQL primary and the standbys that synchronous_standby_names has: " +
			"they keep what they have committed (fsync), " +
			"a fail-over goes to no other standby and stops the old primary, " +
			"and their wall clocks agree and make no step; tokens: nobody restores a backup"
	}
	return g
}

// query sends statements in one round trip and one transaction, after the conditions. It is sent once more if
// the table that they are for was moved or removed, which is then looked for; if a grant was undone since its
// token is not above the floor (see tellSQL); and if it was undone to end a deadlock: requests lock their
// rows in the order of names, but a sharer's has several. Where ready finds no table, nothing is sent. lost:
// see ask.
func (b *Backend) query(
	ctx context.Context, k keep, statements func(s *statements, trip *pgx.Batch),
) (lost int, err error) {
	for first := true; ; first = false {
		s, err := b.ready(ctx, k)
		if err != nil {
			err = &poolError{err}
		} else if s != nil {
			var more int
			more, err = b.ask(ctx, func(conn *pgxpool.Conn) error {
				trip := &pgx.Batch{}                                       // all of which is one transaction
				trip.Queue("SET transaction_isolation = 'read committed'") // which is what the statements are written for
				trip.Queue(s.conditions, k > untilACrash, k == onStandby && b.opts.FailoverSafe, k >= withLeases)
				statements(s, trip)
				err := conn.SendBatch(ctx, trip).Close()
				if err == nil {
					err = b.confirm(ctx, conn, k)
				}
				return err
			})
			lost += more
		}
		if err != nil && lost > 0 {
			err = &unconfirmed{err} // what was lost may have been carried out
		}
		moved, code := missingTable(err), sqlstate.Of(err)
		if s == nil || !first || !moved && code != sqlstate.NoLogarithm && code != sqlstate.Deadlock {
			return lost, err
		}
		if moved {
			b.found.CompareAndSwap(s, nil)
		}
	}
}

// operate is query for a request of one caller, which Close ends, too.
func (b *Backend) operate(ctx context.Context, k keep, statements func(s *statements, trip *pgx.Batch)) error {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	if _, err := b.query(bounded, k, statements); err != nil {
		return b.failure(ctx, err)
	}
	return nil
}

// ask calls do with a connection. One that is lost without an answer, as an idle one is that the server or
// a proxy has closed, is no outage (R26): do is called again with the next one. Whatever is asked may be
// asked twice (R11), and lost says how often the server may have read it in vain: each of those may still be
// under way, and what the last one has found is not the end.
func (b *Backend) ask(ctx context.Context, do func(conn *pgxpool.Conn) error) (lost int, err error) {
	for tries := b.most; ; tries-- {
		conn, err := b.pool.Acquire(ctx)
		if err == nil {
			if err = do(conn); sqlstate.Of(err) == sqlstate.ReadOnly {
				var standby bool
				if conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby) == nil && !standby {
					err = fmt.Errorf("%w: %w", errSetReadOnly, err)
				}
				_ = conn.Conn().Close(ctx) // the next one may be to the server that has taken over
			}
			conn.Release()
		} else {
			err = &poolError{err}
		}
		switch {
		case err == nil:
			return lost, nil
		case tries > 0 && ctx.Err() == nil && lostConnection(err):
			if !unread(err) {
				lost++
			}
		default:
			return lost, err
		}
	}
}

// Prompt implements [driver.Prompt]: a caller alone waits for pgx, which returns when its context ends, and
// those who share a statement leave it to the others. A goroutine for each request would make a lone caller's
// lock and unlock take 12 to 20 % longer.
func (b *Backend) Prompt() bool { return true }

// Close ends the backend's statements and its connection for wake-ups, and the pool if Open made it.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.acquires.Wait()
	b.joins.Wait()
	b.renewals.Wait()
	for _, r := range b.releases {
		r.Wait()
	}
	b.wakes.Wait()
	b.busy.Wait()
	if b.owned {
		closed := make(chan struct{})
		go func() {
			b.pool.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(time.Second): // a server that hangs is not waited for
		}
	}
	return nil
}
