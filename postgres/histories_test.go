package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/refusal"
	"github.com/golockers/locker/postgres"
)

// Histories of one name. a1 asks for it alone and s1 shares it; ?1 is a1 in one run and s1 in another. Odd
// ones are of one client and even ones of another. Each asks for an hour, with a MinHold of a minute. A step
// that is to fail ends with how: lost, held, unavailable, or fails if another error will do.
//
// A step that ends with later goes on in the background until a step with done, the first one first: a gate
// makes it wait in the middle of its transaction, and blocked is that another waits for what that one has
// locked. latch has the name's latch in a transaction of its own until unlatch. retried is that the odd client
// has asked twice for a lock since retries. stop makes the proxy before the odd client keep the request with
// that text, and follow notes its connection, which reset ends. cut loses the reply to the next request with
// that text, and has a step done before its copy arrives, such as down, until up. mark notes when the rows end,
// and same is that nothing has changed since; kept is that a lock is, for a minute at most. break is of what
// look has seen, and alike is that it looks so still, but for when it ends. One that waits leaves a mark, and a
// note where it waits for sharers: note prolongs that, and fade ends it. told is that the even client was told
// of a release. One that is refused soon is not sent away for long.
const histories = `
nothing that is late changes a kept lock; only a release finds it
    ?1 gets; ?1 keeps 1m; mark; ?1 renews lost; ?1 raises lost; ?1 gets held; ?1 keeps 1h; ?1 keeps 1ns;
    same

a release removes what is kept, and one that is late finds nothing
    ?1 gets; ?1 keeps 1m; a2 gets held; ?1 leaves; a2 gets; a2 leaves; ?1 keeps 1m lost; a4 gets;
    ?1 keeps 1m lost; a4 renews

an undo removes what is kept
    ?1 gets; ?1 keeps 1m; ?1 undoes; a2 gets

a break of what was seen before removes what is kept
    ?1 gets; look; ?1 keeps 1m; break; ?1 keeps 1m lost; a2 gets

what has expired is not kept
    ?1 gets; expire; ?1 keeps 1m lost; ?1 leaves lost; a2 gets

what is kept looks as it did before, and those who wait are told at once for how long
    ?1 gets; a2 waits held; listens; look; ?1 keeps 30s; told; alike

a late copy after a kept lock is a hold like any other
    ?1 gets; ?1 keeps 1m; expire; ?1 gets; ?1 renews; ?1 leaves

a late copy, and a renewal, shorten nothing
    ?1 gets; prolong; mark; ?1 gets; same; ?1 renews; same

a late renewal or release harms nobody
    ?1 gets; expire; a2 gets; ?1 renews lost; ?1 leaves lost; ?1 keeps 1m lost; a2 renews

what expires while its release waits is not kept: nobody is told that it is
    a1 gets; gate marks; soon; a2 waits later; reached; a1 keeps 1m later; blocked; passed; open;
    a2 done held; a1 done lost; a2 gets

what is released while another release waits is not kept
    ?1 gets; gate leaves; ?1 leaves later; reached; ?1 keeps 1m later; blocked; open;
    ?1 done; ?1 done lost; a2 gets

what is renewed while its release waits is kept for as long as that says
    ?1 gets; gate renews; soon; ?1 renews later; reached; ?1 keeps 1m later; blocked; passed; open;
    ?1 done; ?1 done; kept; a2 gets held

also when the release comes after the time that was there before
    ?1 gets; gate renews; soon; ?1 renews later; reached; passed; ?1 keeps 1m later; blocked; open;
    ?1 done; ?1 done; kept; a2 gets held

and what is released then was held
    ?1 gets; gate renews; soon; ?1 renews later; reached; passed; ?1 leaves later; blocked; open;
    ?1 done; ?1 done; a2 gets

a release that began in time and is slow was held
    gate goes; s1 gets; soon; s1 leaves later; reached; passed; open; s1 done; a2 gets

a renewal that a release overtakes is lost, and changes nothing
    ?1 gets; gate leaves; ?1 keeps 1m later; reached; ?1 renews later; open; ?1 done; ?1 done lost; kept;
    a2 gets held

two releases of one lock keep it once
    ?1 gets; gate leaves; ?1 keeps 1m later; reached; ?1 keeps 1h later; blocked; open; ?1 done; ?1 done;
    kept; a2 gets held

a sharer of another generation is not kept
    s1 gets; expire; s2 gets; mark; s1 keeps 1m lost; same; s2 leaves; a3 gets

nor does it leave twice
    s1 gets; expire; s2 gets; s1 leaves lost; s2 renews; a3 gets held; s2 leaves; a3 gets

sharers whose row was lost are lost
    s1 gets; lose; s2 gets; s1 renews lost; s1 leaves lost; a3 gets held; s2 leaves; a3 gets

a break ends all sharers
    s1 gets; s2 gets; look; break; s1 renews lost; s2 leaves lost; a3 gets

a break is of those who were seen
    ?1 gets; look; ?1 leaves; ?2 gets; break; ?2 renews

Held keeps the next holder out until the end of its transaction
    a1 gets; a1 held; a1 renews; expire; a2 gets held; a1 commits; a2 gets; a1 held lost

a snapshot from when it held does not deceive it
    a1 gets; a1 begins; expire; a2 gets; a1 held fails

a sole holder is broken whatever its transaction does
    a1 gets; a1 held; look; break; a1 renews lost; a2 gets held; s2 gets held; a1 commits; a2 gets

Held of a sharer keeps writers out, and no sharer
    s1 gets; s2 gets; s1 held; s3 gets; s3 leaves; s2 leaves; s1 renews; s1 leaves; a3 gets held;
    s4 gets held; s1 commits; a3 gets

whose time has passed is too late for it
    ?1 gets; expire; ?1 held lost

a sharer that has left is too late for it
    s1 gets; s2 gets; s1 leaves; s1 held lost; s2 held; s2 commits

and so is one whose generation has ended
    s1 gets; s1 begins; expire; s2 gets; s1 held fails

a break waits for a sharer that is just being let in, which would not know that it was broken
    s1 gets; look; gate joins; s2 gets later; reached; break later; latched; open; s2 done; break done;
    s1 renews lost; s2 renews lost; a3 gets

and one that comes while a break is under way is let in after it
    s1 gets; look; gate breaks; break later; reached; retries; s3 gets later; retried; open; break done;
    s3 done; s1 renews lost; s3 renews; a2 gets held; s3 leaves; a2 gets

a sharer that asks again where sharers were last shares the name all the same
    s1 gets; s1 leaves; latch; retries; s3 gets later; retried; unlatch; s3 done; s5 gets; a2 gets held;
    s3 leaves; s5 renews; s5 leaves; a2 gets

a sharer that comes while the last one leaves is in its generation
    s1 gets; gate joins; s2 gets later; reached; s1 leaves; a3 gets held; open; s2 done; s2 renews;
    a3 gets held; s2 leaves; a3 gets

the last sharers that leave at once each tell who waits
    s1 gets; s3 gets; a2 waits held; listens; gate leaves; s1 leaves later; reached; s3 leaves; told;
    a2 gets held; open; s1 done; told; a2 gets

a writer that waits keeps new sharers out, also when the generation has ended, until it is granted
    s1 gets; a2 waits held; note; s3 gets held; s1 gets; s1 leaves; s3 gets held; a2 gets; a2 leaves; s3 gets

or leaves
    s1 gets; a2 waits held; note; s1 leaves; s3 gets held; a2 stops; s3 gets

or its second has passed
    s1 gets; a2 waits held; s1 leaves; fade; s3 gets

a renewal that began in time keeps the next one out when it is late
    a1 gets; gate renews; soon; a1 renews later; reached; passed; a2 gets later; blocked; open; a1 done;
    a2 done held; a1 renews

a renewal is lost before what comes next commits, also of a lock that is held alone
    a1 gets; expire; gate grants; a2 gets later; reached; a1 renews lost; open; a2 done; a1 renews lost;
    a2 renews

a renewal of a sharer that began in time keeps a writer out when it is late
    s1 gets; gate renews; soon; s1 renews later; reached; passed; a2 gets held; open; s1 done;
    s1 renews; a2 gets held

and a new generation
    s1 gets; gate renews; soon; s1 renews later; reached; passed; s2 gets held; open; s1 done;
    s1 renews; s2 gets; s1 renews

a renewal is lost before what comes next commits, and after
    s1 gets; expire; gate grants; ?2 gets later; reached; s1 renews lost; open; ?2 done; s1 renews lost;
    s1 leaves lost; ?2 renews

a waiter who comes while the lock is being released would not be told of it, and asks again soon
    a1 gets; gate leaves; a1 leaves later; reached; a2 waits soon; open; a1 done; a2 gets

a client that has just looked at a free name has the latch as Held has it, until its commit: nobody is refused
    latch shared; retries; a1 gets later; retried; unlatch; a1 done

a token that is drawn early and written late is not below another
    gate inserts; a1 gets later; reached; a2 gets held; open; a1 done; a1 leaves; a2 gets

a token is above what a sweep removes while it is given
    a1 gets; a1 leaves; lose; gate inserts; a2 gets later; reached; lift; open; a2 done

a row that is being given is not swept
    ?1 gets; ?1 leaves; old; gate grants; ?3 gets later; reached; sweep; open; ?3 done; ?3 renews; a2 gets held

nor is that of sharers who stay, however old it is
    s1 gets; old; sweep; s1 renews; a2 gets held

a name whose row is just being swept is given when that is done, with a greater token
    a1 gets; a1 leaves; high; old; gate sweeps; sweep later; reached; retries; ?3 gets later; retried; open;
    sweep done; ?3 done; ?3 renews

what was done before its reply was lost is found done, but whether a release was in time is not known
    a2 gets; a2 leaves; cut nextval; ?1 gets; cut renewed; ?1 renews; cut in_time; ?1 leaves unavailable;
    ?1 leaves lost; a2 gets

one that no server answers the second time may have been carried out the first time
    a2 gets; a2 leaves; cut nextval down; a1 gets unavailable; up; a1 undoes lost; a2 gets

a request that is refused by its first copy, which then commits, has a hold to take that back
    gate commits; follow nextval; a1 gets later; reached; reset; a1 done held; open; a1 undoes lost; a2 gets

a copy of a release that keeps changes nothing
    ?1 gets; cut 'local' mark; ?1 keeps 1m; same

a copy of a break breaks nobody else
    ?2 gets; look; cut broken ?4 gets; break; ?4 renews

a release that keeps is a request for that time, until which nothing is settled
    ?1 gets; stop 'local'; ?1 keeps 1m later; stopped; ?1 undoes lost; go; ?1 done lost; ?1 undoes
`

// gates are where a step waits.
var gates = map[string]struct{ event, when string }{
	"joins":   {"INSERT", "NEW.sharer = '" + owner(2) + "'"},
	"renews":  {"UPDATE", "NEW.owner = OLD.owner AND NEW.owner NOT IN ('', 'shared') AND NEW.expires > OLD.expires"},
	"grants":  {"UPDATE", "NEW.sharer = '' AND NEW.name > ''"}, // and no sweep
	"inserts": {"INSERT", "NEW.sharer = '' AND NEW.name > ''"},
	"commits": {"COMMIT", "NEW.name > ''"}, // of what was inserted
	"marks":   {"UPDATE", "NEW.waited AND NOT OLD.waited"},
	"leaves":  {"UPDATE OR DELETE", "OLD.owner = '" + owner(1) + "'"},
	"goes":    {"DELETE", "OLD.owner = '" + owner(1) + "'"},
	"breaks":  {"UPDATE", "NEW.owner = '' AND NEW.token > OLD.token AND NEW.name > ''"},
	"sweeps":  {"DELETE", "OLD.sharer = ''"},
}

func TestHistories(t *testing.T) {
	s, proxy, b := proxied(t)
	other, pool := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	acquire(t, b, "first", owner(9)) // the table is there
	played := 0
	for history := range strings.SplitSeq(strings.TrimSpace(histories), "\n\n") {
		what, steps, _ := strings.Cut(history, "\n")
		levels, kinds := []pgx.TxIsoLevel{pgx.ReadCommitted}, "a"
		if strings.Contains(steps, "?") {
			kinds = "as"
		}
		if strings.Contains(steps, "1 held") {
			levels = append(levels, pgx.RepeatableRead, pgx.Serializable)
		}
		for _, level := range levels {
			for _, x := range kinds {
				played++
				p := &play{
					server: s, proxy: proxy, clients: []*postgres.Backend{other, b}, pool: pool, level: level,
					name: fmt.Sprint(played), holds: map[string]driver.Grant{}, txs: map[string]pgx.Tx{},
					leave: map[string]func(context.Context) error{},
					later: map[string][]<-chan error{}, links: make(chan *lab.Link, 1), woken: make(chan struct{}, 100),
				}
				t.Run(fmt.Sprintf("%s/%c/%s", what, x, level), func(t *testing.T) {
					p.t = t
					for step := range strings.SplitSeq(strings.ReplaceAll(steps, "?", string(x)), ";") {
						p.step(step)
					}
				})
			}
		}
	}
}

type play struct {
	t       *testing.T
	server  *lab.Postgres
	clients []*postgres.Backend
	pool    *pgxpool.Pool
	level   pgx.TxIsoLevel
	name    string

	txs    map[string]pgx.Tx
	seen   driver.State // by look
	marked string       // by mark: when the rows end
	later  map[string][]<-chan error

	took          time.Duration // the slowest request that was waited for
	reached, open func()        // of the gate
	reachedAt     time.Time
	latch         pgx.Tx
	asked         chan struct{} // closed when one has asked twice since retries
	patience      time.Duration // of one who asks while another has the latch
	woken         chan struct{} // an element for each wake-up since listens
	proxy         *lab.Proxy
	links         chan *lab.Link // that are stopped
	link          *lab.Link

	mu    sync.Mutex
	last  uint64 // the last token
	holds map[string]driver.Grant
	leave map[string]func(context.Context) error // those of writers that wait for sharers
}

// lease is that of a hold, for Held.
type lease struct {
	driver.Hold
	name string
}

func (l lease) Name() string       { return l.name }
func (l lease) Err() error         { return nil }
func (l lease) As(target any) bool { return l.Hold.(driver.Aser).As(target) }

func (p *play) step(step string) {
	words := strings.Fields(step)
	end := words[len(words)-1]
	var err error
	switch {
	case end == "later":
		p.later[words[0]] = append(p.later[words[0]], later(func() error { return p.do(words) }))
		return
	case slices.Contains(words, "done"):
		err = <-p.later[words[0]][0]
		p.later[words[0]] = p.later[words[0]][1:]
	default:
		began := time.Now()
		if err = p.do(words); slices.Contains(words, "gets") {
			p.took = max(p.took, time.Since(began))
		}
	}
	switch {
	case end == "lost":
		require.ErrorIs(p.t, err, driver.ErrLost, step)
	case end == "held" && words[1] != "held":
		require.ErrorIs(p.t, err, driver.ErrHeld, step)
	case end == "soon" && len(words) > 1:
		held := (*refusal.Error)(nil)
		require.ErrorAs(p.t, err, &held, step)
		require.Less(p.t, held.Remaining, time.Second, step)
	case end == "unavailable":
		require.ErrorIs(p.t, err, driver.ErrUnavailable, step)
	case end == "fails":
		require.Error(p.t, err, step)
	default:
		require.NoError(p.t, err, step)
	}
}

func (p *play) do(words []string) (err error) {
	ctx, name := p.t.Context(), []byte(p.name)
	const rows = "SELECT string_agg(sharer||expires, ' ' ORDER BY sharer) FROM locker_locks WHERE name = $1"
	const ofHolders = " FROM locker_locks WHERE name = $1 AND owner <> 'shared'"
	const live = "SELECT count(*)" + ofHolders + " AND expires > clock_timestamp()"
	const kept = "SELECT bool_and(owner LIKE 'kept %' AND expires < clock_timestamp() + interval '61 s')" + ofHolders
	expire := func(when time.Duration) {
		p.server.Exec(p.t, "UPDATE locker_locks SET expires = clock_timestamp() + $2::float * interval '1 second' "+
			"WHERE name = $1 AND (owner <> 'shared' OR sharer > '')", name, when.Seconds())
	}
	who, i := words[0], 0
	_, _ = fmt.Sscan(who[1:], &i)
	b := p.clients[i%2]
	p.mu.Lock()
	hold := p.holds[who].Hold
	p.mu.Unlock()
	switch verb := words[min(1, len(words)-1)]; {
	case who == "look":
		p.seen, err = p.clients[1].Inspect(ctx, p.name)
	case who == "break":
		err = p.clients[1].Break(ctx, p.seen)
	case who == "mark":
		p.marked = p.server.Query(p.t, rows, name)
	case who == "same":
		require.NotEmpty(p.t, p.marked)
		require.Equal(p.t, p.marked, p.server.Query(p.t, rows, name))
	case who == "kept":
		require.Equal(p.t, "t", p.server.Query(p.t, kept, name))
	case who == "note", who == "fade":
		lasts := map[string]string{"note": "1 hour", "fade": "0"}[who]
		p.server.Exec(p.t, "UPDATE locker_locks SET wanted = clock_timestamp() + $2::interval "+
			"WHERE name = $1 AND wanter > ''", name, lasts)
	case who == "listens":
		stop, failed := p.clients[0].Notify(ctx, p.name, func() { p.woken <- struct{}{} })
		require.NoError(p.t, failed)
		p.t.Cleanup(stop)
		for len(p.woken) > 0 {
			<-p.woken // it is told that the connection hears
		}
	case who == "told":
		p.receive(p.woken)
	case who == "alike":
		asked := time.Now()
		now, failed := p.clients[1].Inspect(ctx, p.name)
		require.NoError(p.t, failed)
		assert.LessOrEqual(p.t, now.Remaining, 30*time.Second)
		assert.WithinDuration(p.t, asked.Add(now.Remaining), now.KeptUntil, time.Since(asked)+time.Second)
		assert.WithinDuration(p.t, p.seen.Since.Add(time.Minute), p.seen.KeptUntil, time.Second)
		assert.WithinDuration(p.t, time.Now(), p.seen.Since, 30*time.Second)
		now.Remaining, now.KeptUntil = p.seen.Remaining, p.seen.KeptUntil
		assert.Equal(p.t, p.seen, now)
	case who == "latch":
		p.latch = begin(p.t, p.pool)
		how := map[string]string{"latch": "", "shared": "_shared"}[verb]
		if verb == "shared" {
			p.patience = postgres.ProtectedFor
		}
		_, err = p.latch.Exec(ctx, "SELECT pg_advisory_xact_lock"+how+"($1)", postgres.Key(p.name))
	case who == "unlatch":
		err = p.latch.Commit(ctx)
	case who == "retries":
		p.asked, p.patience = make(chan struct{}), cmp.Or(p.patience, postgres.BusyFor)
		p.proxy.OnRequest("nextval", func(*lab.Link) {
			p.proxy.OnRequest("nextval", func(*lab.Link) { close(p.asked) })
		})
	case who == "retried":
		p.receive(p.asked)
	case who == "blocked":
		until(p.t, p.server, "1", "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
	case who == "sweep":
		err = postgres.Sweep(ctx, p.clients[0])
	case who == "old":
		p.server.Exec(p.t, "UPDATE locker_locks SET expires = clock_timestamp() - interval '1 hour' "+
			"WHERE name = $1 AND sharer = ''", name)
	case who == "high":
		p.last = 1 << 61
		p.server.Exec(p.t, "UPDATE locker_locks SET token = $2 WHERE name = $1", name, p.last)
	case who == "expire":
		expire(0)
	case who == "prolong":
		expire(2 * time.Hour)
	case who == "soon": // time enough to reach a gate that is there, also on a slow machine
		expire(max(1200*time.Millisecond, 10*p.took))
	case who == "passed":
		until(p.t, p.server, "0", live, name)
		time.Sleep(time.Until(p.reachedAt.Add(postgres.BusyFor))) // one who waits at the gate does not ask again after it
	case who == "lose":
		p.server.Exec(p.t, "DELETE FROM locker_locks WHERE name = $1 AND sharer = ''", name)
	case who == "lift":
		p.last = 1 << 60
		p.server.Exec(p.t, "INSERT INTO locker_locks "+
			"SELECT '', '', '', '', $1, 'epoch', 'epoch', 'epoch', false, 'epoch', '' "+
			"ON CONFLICT (name, sharer) DO UPDATE SET token = excluded.token", p.last)
	case who == "gate":
		p.reached, p.open = gate(p.t, p.server, gates[verb].event, gates[verb].when)
	case who == "reached":
		p.reached()
		p.reachedAt = time.Now()
	case who == "latched":
		until(p.t, p.server, "1", "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ExclusiveLock'")
	case who == "open":
		p.open()
	case who == "cut":
		p.proxy.OnRequest(verb, func(l *lab.Link) {
			l.CutOnReply()
			if len(words) > 2 {
				p.proxy.OnRequest(verb, func(*lab.Link) { assert.NoError(p.t, p.do(words[2:])) })
			}
		})
	case who == "down", who == "up":
		p.proxy.Set(map[string]lab.Mode{"down": lab.Reset, "up": lab.Pass}[who])
	case who == "follow":
		p.proxy.OnRequest(verb, func(l *lab.Link) { p.links <- l })
	case who == "reset":
		(<-p.links).Reset()
	case who == "stop":
		p.proxy.OnRequest(verb, func(l *lab.Link) { l.Requests(lab.Hold); p.links <- l })
	case who == "stopped":
		p.link = <-p.links
	case who == "go":
		p.link.Requests(lab.Pass)
	case verb == "gets", verb == "waits":
		req := request(p.name, owner(i))
		req.Shared, req.TTL, req.MinHold, req.Wait = who[0] == 's', time.Hour, time.Minute, verb == "waits"
		req.Label = who
		var g driver.Grant
		for again := true; again; {
			began := time.Now()
			g, err = locktest.Ask(ctx, b, req)
			// One who asks until the latch is free gives up if the machine is too slow to free it in time.
			again = p.patience > 0 && time.Since(began) >= p.patience && errors.Is(err, driver.ErrHeld)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if held := (*refusal.Error)(nil); errors.As(err, &held) {
			p.leave[who] = held.Leave
		} else if err == nil {
			same := g.Token == p.last && (req.Shared || g.Token == p.holds[who].Token)
			assert.True(p.t, same || g.Token > p.last, "a token does not fall")
			p.last = g.Token
		}
		if g.Hold != nil { // also of what an error or a refusal may have left
			p.holds[who] = g
		}
	case verb == "stops":
		err = p.leave[who](ctx)
	case verb == "renews":
		_, err = hold.Renew(ctx)
	case verb == "leaves":
		err = hold.Release(ctx, 0)
	case verb == "keeps":
		keep, wrong := time.ParseDuration(words[2])
		require.NoError(p.t, wrong)
		err = hold.Release(ctx, keep)
	case verb == "undoes":
		require.NotNil(p.t, hold)
		err = hold.Undo(ctx)
	case verb == "raises":
		err = hold.(driver.TokenRaiser).RaiseToken(ctx, 5)
	case verb == "begins", verb == "held":
		if p.txs[who] == nil {
			tx, failed := p.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: p.level})
			require.NoError(p.t, failed)
			p.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			p.txs[who] = tx
		}
		if verb == "begins" {
			_, err = p.txs[who].Exec(ctx, "SELECT count(*) FROM locker_locks") // it has a snapshot
		} else if err = postgres.Held(ctx, p.txs[who], lease{hold, p.name}); err != nil {
			require.ErrorIs(p.t, p.txs[who].Commit(ctx), pgx.ErrTxClosed)
		}
	case verb == "commits":
		err = p.txs[who].Commit(ctx)
		delete(p.txs, who)
	default:
		require.Fail(p.t, "no such step", words)
	}
	return err
}

func (p *play) receive(from <-chan struct{}) {
	select {
	case <-from:
	case <-time.After(30 * time.Second):
		require.Fail(p.t, "it does not happen")
	}
}

// gate makes the statement of a client wait while it changes a row, as a transaction does that is slow.
// reached returns when one waits, and open lets it go on.
func gate(t *testing.T, s *lab.Postgres, event, when string) (reached, open func()) {
	t.Helper()
	const end = "DROP FUNCTION IF EXISTS gate CASCADE"
	t.Cleanup(func() { s.Exec(t, end) })
	conn, err := pgx.Connect(t.Context(), s.URL(s.Addr(), "sslmode=disable"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock(1)")
	require.NoError(t, err)
	s.Exec(t, `CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOOP
		BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN coalesce(NEW, OLD);
		EXCEPTION WHEN query_canceled THEN END; -- a driver that gives up asks for that, and a commit does not
	END LOOP; END $$`)
	trigger := "TRIGGER gate BEFORE " + event + " ON locker_locks"
	if event == "COMMIT" {
		trigger = "CONSTRAINT TRIGGER gate AFTER INSERT ON locker_locks DEFERRABLE INITIALLY DEFERRED"
	}
	s.Exec(t, "CREATE "+trigger+" FOR EACH ROW WHEN ("+when+") EXECUTE FUNCTION gate()")
	return func() {
			until(t, s, "1", "SELECT count(*) FROM pg_locks WHERE NOT granted AND objid = 1 AND classid = 0")
		}, func() {
			_, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock(1)")
			require.NoError(t, err)
			s.Exec(t, end)
		}
}

// later calls ask in the background.
func later(ask func() error) <-chan error {
	answered := make(chan error, 1)
	go func() { answered <- ask() }()
	return answered
}
