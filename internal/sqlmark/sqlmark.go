// Package sqlmark is the guard of package fencing that keeps its marks in a table of a SQL database, apart from the
// driver: sqlguard is it with database/sql, and pgxguard with pgx. Their documentation says what it promises.
package sqlmark

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/sqlstate"
)

// Tx is a transaction of a driver. For Create, it may be a database.
type Tx interface {
	Exec(ctx context.Context, query string, args ...any) error
	// Number returns the number in the one row of the answer; 0: there is no row.
	Number(ctx context.Context, query string, args ...any) (n int64, err error)
	Rollback(ctx context.Context) error
}

// Class is what an error says about its statement.
type Class int

// Classes of errors.
const (
	Foreign  Class = iota // nothing: it is not of the database, as far as can be seen
	Answered              // the database has refused
	Conflict              // others were in the way: the transaction may be repeated
	Down                  // the database has answered that it cannot serve for the moment
	Lost                  // the connection broke, or there is none
)

// OfState is the class of an error with a code of PostgreSQL, and Foreign of one without.
func OfState(err error) Class {
	switch state := sqlstate.Of(err); {
	case state == "":
		return Foreign
	case sqlstate.Unavailable(state):
		return Down
	case sqlstate.Met(state):
		return Conflict
	}
	return Answered
}

// Statements are the fields of sqlguard's type of this name.
type Statements struct{ Create, Raise, Lock, Mark, Forget, Sweep string }

// Guard is the guard of a table.
type Guard struct {
	Name  string // of the guard's package, with which its errors begin
	Class func(error) Class
	SQL   Statements
}

// Wrap makes the error for the caller. resource may be empty.
func (g *Guard) Wrap(ctx context.Context, op, resource string, err error, unknown bool) error {
	if resource != "" {
		op = fmt.Sprintf("%s %q", op, resource)
	}
	outcome := fencing.Refused
	switch {
	case unknown:
		outcome = fencing.Unknown
	case err != nil && (ctx.Err() != nil || g.Class(err) >= Down):
		outcome = fencing.Unsent
	}
	return fencing.Failed(ctx, g.Name+": "+op, err, outcome)
}

// Create creates the table of marks if it is missing.
func (g *Guard) Create(ctx context.Context, db Tx) (err error) {
	for range 3 { // if others create it at the same time, this fails, and finds it next time
		err = db.Exec(ctx, g.SQL.Create)
		if err == nil || g.Class(err) != Conflict && !sqlstate.TheyMeet(sqlstate.Of(err)) {
			break
		}
	}
	return g.Wrap(ctx, "create the table", "", err, false)
}

// Check raises the mark of resource to token inside tx, or refuses and rolls tx back.
func (g *Guard) Check(ctx context.Context, tx Tx, resource string, token fencing.Token) error {
	err := g.check(ctx, tx, resource, token)
	if err != nil {
		_ = tx.Rollback(context.WithoutCancel(ctx)) // if this fails, tx cannot be committed either
	}
	return err
}

func (g *Guard) check(ctx context.Context, tx Tx, resource string, token fencing.Token) error {
	if err := fencing.Check(resource, token); err != nil {
		return err
	}
	if token > math.MaxInt64 {
		return fmt.Errorf("%s: the token %d is more than a signed 64-bit column can hold, which is %d: %w",
			g.Name, token, int64(math.MaxInt64), locker.ErrInvalid)
	}
	var mark int64
	var err error
	key, n := []byte(resource), int64(token)
	if g.SQL.Lock == "" {
		mark, err = tx.Number(ctx, g.SQL.Raise, key, n)
	} else if err = tx.Exec(ctx, g.SQL.Raise, key, n, n); err == nil {
		mark, err = tx.Number(ctx, g.SQL.Lock, key)
	}
	if err == nil && mark <= 0 {
		err = fmt.Errorf("its mark in the table is %d, which is not a token: no guard has written it", mark)
	}
	if sqlstate.Of(err) == sqlstate.ByZero {
		err = fmt.Errorf("the table of marks is UNLOGGED or TEMPORARY: a crash would empty it, and stale writes be "+
			"accepted: ALTER TABLE … SET LOGGED: %w", err)
	}
	if err != nil {
		return g.Wrap(ctx, "check the token for", resource, err, false)
	}
	return fencing.Admit(resource, token, fencing.Token(mark))
}

// Do begins a transaction, checks, calls fn in it unless that is nil, and commits.
func (g *Guard) Do(ctx context.Context, resource string, token fencing.Token, begin func() (Tx, error),
	fn, commit func() error) error {
	tx, err := begin()
	if err != nil {
		return g.Wrap(ctx, "begin a transaction for", resource, err, false)
	}
	rollback := func() error { return tx.Rollback(context.WithoutCancel(ctx)) }
	defer func() { _ = rollback() }() // nothing to do after a commit
	if err = g.Check(ctx, tx, resource, token); err != nil {
		return err
	}
	if fn != nil {
		err = fn()
	}
	if err != nil {
		unknown, class := sqlstate.Of(err) == sqlstate.NotKnown, g.Class(err)
		over := rollback() // err may be about another connection
		if class == Answered || class == Conflict || class == Down ||
			over != nil && g.Class(over) == Lost && !errors.Is(err, locker.ErrUnavailable) {
			err = g.Wrap(ctx, "write to", resource, err, unknown)
		}
		return err
	}
	err = commit()
	unknown := err != nil && (ctx.Err() != nil || g.Class(err) >= Down || sqlstate.Of(err) == sqlstate.NotKnown)
	return g.Wrap(ctx, "commit the write to", resource, err, unknown)
}

// Raise calls do, which moves the mark in a transaction of its own, again while others are in the way.
func (g *Guard) Raise(ctx context.Context, do func() error) error {
	const patience, pause = 10 * time.Second, 20 * time.Millisecond
	for began := time.Now(); ; {
		err := do()
		if err == nil || g.Class(err) != Conflict || time.Since(began) > patience {
			return err
		}
		_ = clock.Sleep(ctx, clock.UpTo(pause)) // if ctx is over, the next attempt says so
	}
}
