package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/sqlstate"
)

// errSetReadOnly is why a server that is no standby takes no writes.
var errSetReadOnly = errors.New("default_transaction_read_only is on, and the server is no standby")

// poolError is an error from before anything was sent.
type poolError struct{ error }

func (e *poolError) Unwrap() error { return e.error }

// unread reports whether the server had ended the connection before it read anything of what was sent, with
// the SQLSTATE of idle_session_timeout.
func unread(err error) bool {
	var late *unconfirmed
	return sqlstate.Of(err) == "57P05" && !errors.As(err, &late)
}

// unknown reports whether the statement may have been carried out. pgconn.SafeToRetry does not tell: it is
// true of what follows in a batch whose connection is lost.
func unknown(err error) bool {
	var e *pgconn.PgError
	var none *poolError
	var late *unconfirmed
	switch {
	case errors.As(err, &late):
		return true
	case errors.As(err, &none), unread(err):
		return false
	case errors.As(err, &e):
		// An ERROR of the server has undone it. An error that ends the connection may have come during the
		// commit, and one that is about connections is a proxy's, which has lost the server.
		return e.SeverityUnlocalized != "ERROR" && e.Severity != "ERROR" || sqlstate.Unknown(e.Code)
	}
	return true
}

// missingTable reports whether the table is not there, or another is in its place, such as a view.
func missingTable(err error) bool {
	s := sqlstate.Of(err)
	return s == sqlstate.NoTable || s == sqlstate.NoSchema || s == sqlstate.NoColumn
}

// lostConnection reports whether the connection ended before there was an answer.
func lostConnection(err error) bool {
	var none *poolError
	var e *pgconn.PgError
	switch {
	case err == nil, errors.As(err, &none):
		return false
	case errors.As(err, &e):
		// The server says that it ends the connection, and not why the statement failed.
		return sqlstate.Ended(e.Code)
	}
	var n net.Error
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		(errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &n) || pgconn.SafeToRetry(err))
}

// failure says, in the engine's words, why there was no answer (R17).
func (b *Backend) failure(ctx context.Context, err error) error {
	var e *pgconn.PgError
	text := err.Error()
	if c := (*pgconn.ConnectError)(nil); errors.As(err, &c) {
		// Without the user's name, which in a mistyped URL may be a part of the password.
		text = "failed to connect: " + c.Unwrap().Error()
	}
	// One line: if several servers cannot be reached, the driver has a line for each.
	text = strings.Join(strings.Fields(text), " ")
	advice, again := "", true
	switch code := sqlstate.Of(err); {
	case b.life.Err() != nil:
		return fmt.Errorf("postgres %s: %w", b.addr, driver.ErrClosed)
	case ctx.Err() != nil && (unknown(err) || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return &failure{text: text, causes: []error{ctx.Err()}} // not the cause, which may be the end of another lock
	case errors.Is(err, puddle.ErrClosedPool):
		again, advice = false, ": the pool was closed before the locks' client"
	case errors.Is(err, errBlind):
		again = false
	case code == sqlstate.ByZero: // see conditionsSQL
		text = errNoStandby.Error()
	case errors.Is(err, errFleeting), code == sqlstate.NoRoot: // see conditionsSQL
		if text = errFleeting.Error(); code != sqlstate.NoRoot {
			text = err.Error()
		}
		again, advice = false, ": ALTER TABLE … SET LOGGED, or name another in Options.Table"
	case errors.Is(err, errOld):
		again, advice = false, ": stop the programs that lock with the older release, and DROP TABLE (its sequence "+
			"may stay); or name another table in Options.Table (table= in the URL), whose locks exclude none of theirs"
	case errors.Is(err, errGone), missingTable(err) && b.known.Load():
		text, again = errGone.Error(), false
		advice = ": if it was renamed or moved, move it back, or name it in Options.Table; if it was dropped on " +
			"purpose, and nobody acts who held a lock in it, make it with what postgres.Schema returns"
	case errors.Is(err, errNoTable), code == sqlstate.NoSchema && errors.Is(err, errNotMade):
		again, advice = false, ": make the table with what postgres.Schema returns"
		if b.schema == "" {
			advice += ", or name its schema (schema.table in Options.Table, or table= in the URL): " +
				"search_path does not lead to it"
		}
	case code == sqlstate.NoRight && errors.Is(err, errNotMade):
		again, advice = false, ": GRANT CREATE ON SCHEMA … to the user, or have another user make them with what "+
			"postgres.Schema returns"
	case errors.Is(err, errSetReadOnly):
		advice = ": set default_transaction_read_only = off for the user, the database or the server"
	case code == sqlstate.ReadOnly:
		advice = ": it is a standby, or was the primary before a fail-over: " +
			"with several hosts in the address, add target_session_attrs=read-write"
	case strings.Contains(text, "read only connection"): // of target_session_attrs
		advice = ": no host of the address takes writes: they are standbys, or default_transaction_read_only is on"
	case code == sqlstate.NoStatement, code == sqlstate.HasStatement:
		again, advice = false, ": a proxy mixes up prepared statements: add default_query_exec_mode=exec "+
			"to the address, or let pgbouncer keep them (max_prepared_statements)"
	case code == sqlstate.NoRight:
		again, advice = false, ": the user needs SELECT, INSERT, UPDATE and DELETE on the table, "+
			"and USAGE on its sequence"
	case errors.As(err, &e):
		again = sqlstate.Unavailable(code) || sqlstate.Met(code) || code == sqlstate.NoLogarithm
	case errors.Is(err, context.DeadlineExceeded):
		// Not a cause: it is not the caller's deadline that has passed.
		text = fmt.Sprintf("postgres %s: no answer, or no free connection in the pool, for %v: %s",
			b.addr, b.opts.Timeout, text)
		return &failure{text: text, causes: []error{driver.ErrUnavailable}}
	}
	f := &failure{text: fmt.Sprintf("postgres %s: %s%s", b.addr, text, advice), causes: []error{err}}
	if again {
		f.causes = append(f.causes, driver.ErrUnavailable)
	}
	return f
}

// failure is an error that reads as one line.
type failure struct {
	text   string
	causes []error
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.causes }
