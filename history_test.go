package locker_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/slots"
)

const ttl = 9 * time.Second

// play plays histories of one client, whose TTL is 9 s, on a [scripted] service, in virtual time. Steps
// are separated by semicolons or line ends. What is to come of a step stands behind its colon; without
// one it succeeds. A service that is not said to be prompt plays each history as one that is, too.
//
//	service queue prompt       what the service is like, see scripted; only as the first step. outage=1s is the
//	                           OutageTimeout of the client
//	2s                         time passes
//	a locks shared until 5s: waits      a calls Lock with these options, and has no answer yet
//	b tries ttl 2s on x: held in 0s     b calls TryLock for x (others: "job"), and gets this error at once
//	a: held deadline "text"    what has come of a's call: all that its error matches ("held?": it may), a part
//	                           of its text
//	a leaves                   a's context ends; "for lost": for that cause
//	a unlocks, a renews        with "until 1s" for the context, "endless" for one that cannot end, or "within b"
//	                           for that of b's lease, as all calls
//	a returns                  it calls GiveBack
//	a locks all of x y, a locks any of x y, a has x y     several names, and the leases that it has
//	a holds                    its lease is good; "a until 9s": since its call; "a ended: lost": it is over
//	a ends: lost in 9s         it is over so long after it was granted, and not before
//	client closes: unavailable in 4s
//	job is free, job is held   in the service
//	others hold job 1h, others unlock job     somebody else, in the service
//	job is deleted             from the service
//	renew: ok lost then hangs  what becomes of requests of a kind, see scripted.script; "acquire x:" of one name
//	down, up                   and of all requests
//	count renew 9-11 Pending 0 requests by kind, and figures of Stats
//	told: a done held          what Trace was told since the last such step
func play(t *testing.T, histories map[string]string) {
	for what, history := range histories {
		steps := strings.FieldsFunc(history, func(r rune) bool { return r == ';' || r == '\n' })
		traits, plain := strings.CutPrefix(strings.TrimSpace(steps[0]), "service ")
		if plain {
			steps = steps[1:]
		} else {
			traits = ""
		}
		services := []string{traits}
		if !strings.Contains(traits, "prompt") && !strings.Contains(traits, "deaf") {
			services = append(services, traits+" prompt")
		}
		for _, traits := range services {
			t.Run(what+" "+traits, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playOne(t, traits, steps) })
			})
		}
	}
}

func playOne(t *testing.T, traits string, steps []string) {
	s := newScripted(strings.Fields(traits)...)
	p := &player{t: t, s: s, calls: map[string]*outcome{}, locks: map[string]*outcome{},
		ends: map[string]context.CancelCauseFunc{}, others: map[string]driver.Hold{}}
	opts := &locker.Options{TTL: ttl, Trace: p.told.trace()}
	for _, trait := range s.traits {
		if timeout, ok := strings.CutPrefix(trait, "outage="); ok {
			opts.OutageTimeout = amount(timeout)
		}
	}
	if p.c = locktest.Must(locker.New(s.backend(), opts)); s.is("owned") {
		var err error
		p.c, err = locker.Open(t.Context(), "x://", opts, driver.Openers{
			"x": func(context.Context, *driver.URL, driver.Settings) (driver.Backend, error) { return s.backend(), nil },
		})
		require.NoError(t, err)
	}
	defer p.end()
	for _, step := range steps {
		if step = strings.TrimSpace(step); step != "" {
			p.step(step)
		}
		if t.Failed() {
			t.Fatalf("after %q", step)
		}
	}
}

// end ends what is under way: nothing is left behind, and Close had nothing to wait for.
func (p *player) end() {
	p.s.set("ok")
	began := time.Now()
	err := p.c.Close()
	if p.calls["client"] == nil {
		assert.NoError(p.t, err)
		assert.LessOrEqual(p.t, time.Since(began), time.Second)
	}
	for _, end := range p.ends {
		end(nil)
	}
	for _, hold := range p.others {
		_ = hold.Release(p.t.Context(), 0)
	}
	time.Sleep(2 * time.Hour) // what is late has come, and MinHold is over
	st := p.c.Stats()
	assert.Zero(p.t, st.Held+st.Waiting+st.Pending)
	assert.Empty(p.t, p.s.wrong)
	for st, err := range p.s.Backend.List(p.t.Context(), "") {
		p.t.Errorf("left behind: %+v, %v", st, err)
	}
}

type player struct {
	t      *testing.T
	s      *scripted
	c      *locker.Client
	told   told
	calls  map[string]*outcome // the last of each
	locks  map[string]*outcome // the last that was for a lease
	ends   map[string]context.CancelCauseFunc
	others map[string]driver.Hold // in the service

	mu    sync.Mutex
	token uint64 // the last
}

// outcome is what comes of a call.
type outcome struct {
	began, ended time.Time
	leases       locker.Leases
	err          error
	done         chan struct{}
}

// leases are those that somebody has, or had.
func (p *player) leases(who string) locker.Leases {
	o := p.locks[who]
	require.NotNil(p.t, o, "%s has no lease", who)
	<-o.done
	require.NoError(p.t, o.err)
	return o.leases
}

func (p *player) step(text string) {
	do, want, _ := strings.Cut(text, ":")
	want = strings.TrimSpace(want)
	words := strings.Fields(do)
	who, verb := words[0], ""
	if len(words) > 1 {
		verb = words[1]
	}
	switch {
	case slices.Contains(kinds, who), who == "close":
		p.s.script(strings.Join(words, " "), want)
	case who == "down", who == "up":
		p.s.set(map[string]string{"down": "down", "up": "ok"}[who])
	case who == "count":
		p.count(words[1:])
	case who == "told":
		assert.Equal(p.t, want, strings.Join(p.told.take(), ", "))
	case who == "others":
		p.other(verb, words[2:])
	case verb == "is":
		if words[2] == "deleted" {
			assert.Equal(p.t, want == "", p.s.Lose(who))
		} else {
			assert.Equal(p.t, words[2] == "held", p.s.held(who), text)
		}
	case verb == "holds":
		for _, l := range p.leases(who) {
			assert.NoError(p.t, l.Err(), text)
		}
	case verb == "has":
		assert.Equal(p.t, words[2:], names(p.leases(who)))
	case verb == "until":
		p.between(words[2], p.leases(who)[0].Until().Sub(p.locks[who].began), text)
	case verb == "ends", verb == "ended":
		l := p.leases(who)[0]
		if verb == "ends" {
			assert.NoError(p.t, l.Err(), text)
			<-l.Done()
		}
		o := p.locks[who]
		p.expect(&outcome{began: o.ended, ended: time.Now(), err: l.Err(), done: o.done}, want, text)
	case verb == "leaves":
		p.ends[who](sentinels[words[len(words)-1]])
		synctest.Wait()
	case verb == "":
		if d, err := time.ParseDuration(who); err == nil {
			time.Sleep(d)
			synctest.Wait()
		} else {
			p.expect(p.calls[who], want, text)
		}
	default:
		p.call(who, verb, words[2:])
		p.expect(p.calls[who], want, text)
	}
}

// call makes a call in a goroutine of its own, and waits until it can do no more.
func (p *player) call(who, verb string, words []string) {
	endless := context.WithValue(context.Background(), caller{}, who)
	name, several := "job", []string(nil)
	ctx, end := context.WithCancelCause(endless)
	stop := func() {}
	var opts []locker.Option
	for len(words) > 0 {
		word, value := words[0], words[min(1, len(words)-1)]
		words = words[1:]
		switch word {
		case "shared":
			opts = append(opts, locker.Shared())
			continue
		case "norenew":
			opts = append(opts, locker.NoRenew())
			continue
		case "endless":
			ctx = endless
			continue
		case "until":
			ctx, stop = context.WithTimeout(ctx, amount(value))
		case "on":
			name = value
		case "within":
			ctx, stop = p.leases(value)[0].Context(ctx)
		case "all", "any": // of
			several, words, verb = words[1:], words[:1], verb+" "+word
		default:
			option := map[string]func(time.Duration) locker.Option{"ttl": locker.TTL,
				"maxwait": locker.MaxWait, "minhold": locker.MinHold, "maxhold": locker.MaxHold}
			opts = append(opts, option[word](amount(value)))
		}
		words = words[1:]
	}
	p.ends[who] = end
	p.t.Cleanup(stop)
	o := &outcome{began: time.Now(), done: make(chan struct{})}
	var mine locker.Leases
	switch p.calls[who] = o; verb {
	case "unlocks", "returns", "renews", "raises":
		mine = p.leases(who)
	case "closes":
	default:
		p.locks[who] = o
	}
	go func() {
		defer close(o.done)
		var l *locker.Lease
		switch verb {
		case "locks":
			l, o.err = p.c.Lock(ctx, name, opts...)
		case "tries":
			l, o.err = p.c.TryLock(ctx, name, opts...)
		case "locks any":
			l, o.err = slots.LockAny(ctx, p.c, several, opts...)
		case "locks all":
			o.leases, o.err = locker.LockAll(ctx, p.c, several, opts...)
		case "unlocks":
			o.err = mine.Unlock(ctx)
		case "returns":
			o.err = mine[0].GiveBack(ctx)
		case "renews":
			o.err = mine[0].Renew(ctx)
		case "raises":
			o.err = mine[0].RaiseToken(ctx, 1000)
		case "closes":
			o.err = p.c.Close()
		default:
			panic("unknown: " + verb)
		}
		if o.ended = time.Now(); l != nil {
			o.leases = locker.Leases{l}
		}
		for _, l := range o.leases {
			p.grant(l)
		}
	}()
	synctest.Wait()
}

// grant checks that tokens rise.
func (p *player) grant(l *locker.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	token, _ := l.Token()
	assert.True(p.t, token > p.token || l.Shared() && token == p.token, "token %d after %d", token, p.token)
	p.token = token
}

var quoted = regexp.MustCompile(`"[^"]*"`)

// sentinels are what an error that leaves the library may match.
var sentinels = map[string]error{"ok": nil, "held": locker.ErrHeld, "lost": locker.ErrLost,
	"unlocked": locker.ErrUnlocked, "closed": locker.ErrClosed, "unavailable": locker.ErrUnavailable,
	"refused": locker.ErrRefused, "invalid": locker.ErrInvalid, "unsupported": errors.ErrUnsupported,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded, "mine": errors.New("my own reason")}

// expect checks what has come of a call.
func (p *player) expect(o *outcome, want, text string) {
	if want == "waits" {
		select {
		case <-o.done:
			p.t.Errorf("%s: it has returned: %v", text, o.err)
		default:
		}
		return
	}
	<-o.done
	synctest.Wait()
	for _, part := range quoted.FindAllString(want, -1) {
		assert.Contains(p.t, fmt.Sprint(o.err), strings.Trim(part, `"`), text)
	}
	words := strings.Fields(quoted.ReplaceAllString(want, ""))
	if i := slices.Index(words, "in"); i >= 0 {
		p.between(words[i+1], o.ended.Sub(o.began), text)
		words = words[:i]
	}
	if len(words) == 0 {
		words = []string{"ok"}
	}
	for word, err := range sentinels {
		if !slices.Contains(words, word+"?") {
			assert.Equal(p.t, slices.Contains(words, word), errors.Is(o.err, err), "%s: %s: %v", text, word, o.err)
		}
	}
	for _, word := range words {
		assert.Contains(p.t, sentinels, strings.TrimSuffix(word, "?"), text)
	}
	//nolint:errorlint // Lease.Err gives these as they are
	if o.err != nil && o.err != locker.ErrUnlocked && o.err != locker.ErrClosed {
		assert.ErrorAs(p.t, o.err, new(*locker.Error), text)
		assert.NotContains(p.t, o.err.Error(), "\n")
	}
}

// between checks a time or a number: "2s", or "2s-3s".
func (p *player) between(want string, is time.Duration, what string) {
	from, to, found := strings.Cut(want, "-")
	if !found {
		to = from
	}
	assert.True(p.t, amount(from) <= is && is <= amount(to), "want %s %s, have %v", what, want, is)
}

func amount(text string) time.Duration {
	if n, err := strconv.Atoi(text); err == nil {
		return time.Duration(n)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func (p *player) count(words []string) {
	for i := 0; i < len(words); i += 2 {
		is := time.Duration(p.s.count(words[i]))
		if f := reflect.ValueOf(p.c.Stats()).FieldByName(words[i]); f.IsValid() {
			is = amount(fmt.Sprint(f.Interface()))
		}
		p.between(words[i+1], is, words[i])
	}
}

// other does what somebody else does in the service.
func (p *player) other(verb string, words []string) {
	name := "job"
	if len(words) > 0 {
		name = words[0]
	}
	if verb == "unlock" {
		assert.NoError(p.t, p.others[name].Release(p.t.Context(), 0))
		p.s.wake()
		synctest.Wait()
		return
	}
	d := amount(words[1])
	g, err := p.s.Backend.Acquire(p.t.Context(), driver.Request{Name: name, TTL: d, MinHold: d, Lost: func() {},
		Shared: slices.Contains(words, "shared")})
	require.NoError(p.t, err)
	p.others[name] = g.Hold
}
