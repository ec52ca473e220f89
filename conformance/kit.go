package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/stall"
)

// kit plays scripts against one service, and judges the histories.
type kit struct {
	h       Harness
	g       locker.Guarantees
	run     string // makes the names of this run unique
	lines   int    // of a timeline, at most
	check   string // the name of the T that hooks are given
	virtual bool
	facts   *facts

	passes, raises, operates, notifies, prompt, queue bool
	expires, sessions                                 bool // locks end without their holder; a session keeps them

	ttl      time.Duration // of locks that should expire
	long     time.Duration // of locks that should not
	soon     time.Duration // prompt, on a busy machine
	slow     time.Duration // not prompt, even on a busy service
	patience time.Duration // with a healthy call
	tol      time.Duration // the error of times on a busy machine
	coarse   time.Duration // by how much a State's time may be too short, if a service counts seconds
	air      time.Duration // how long a healthy request is in flight
	usual    time.Duration // how long a request took
	promptly time.Duration // what Prompt promises
	wake     time.Duration // how long a wake-up may take

	longest time.Duration // the longest TTL

	turn  chan struct{}    // has one place, for the caller of a hook
	again chan struct{}    // likewise, for repeated scripts
	plain []driver.Backend // clients that all scripts share; nil: each has its own
}

// newKit finds out what the backend can do.
func newKit(t *recorder, h Harness, virtual bool, f *facts) *kit {
	k := &kit{h: h, lines: timelineLines, check: histories, virtual: virtual, facts: f, turn: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	var b [4]byte
	_, _ = rand.Read(b[:])
	k.run = hex.EncodeToString(b[:])
	one := h.New(t)
	if one == nil {
		t.Errorf("the harness returned a nil Backend from New, and did not say why with t.Errorf and t.FailNow")
		t.FailNow()
	}
	defer func() { _ = one.Close() }()
	k.g = one.Guarantees()
	k.longest = cmp.Or(k.g.MaxTTL, 24*time.Hour)
	k.times(max(h.ttlOrDefault(), k.g.MinTTL), 1)
	_, k.operates = one.(driver.Operator)
	_, k.notifies = one.(driver.Notifier)
	k.queue = driver.HasQueue(one)
	p, ok := one.(driver.Prompt)
	k.prompt = ok && p.Prompt()
	ctx, cancel := context.WithTimeout(t.Context(), 2*k.patience)
	defer cancel()
	req := driver.Request{Name: "kit-" + k.run + "-first", Owner: owner(), TTL: k.ttl, Lost: func() {}, Queued: func() {}}
	began := time.Now()
	grant, err := acquire(ctx, one, req)
	for i := 2; errors.Is(err, locker.ErrUnavailable) && time.Since(began) < k.patience; i++ { // as after the previous check
		k.pause(ctx, k.air)
		req.Name, req.Owner = fmt.Sprintf("kit-%s-first-%d", k.run, i), owner()
		grant, err = acquire(ctx, one, req)
	}
	if err != nil || grant.Hold == nil {
		t.Errorf("broken promise: A free name can be had.\n  seen: the first Acquire returned %v", err)
		t.FailNow()
	}
	_, k.passes = grant.Hold.(driver.Passer)
	_, k.raises = grant.Hold.(driver.TokenRaiser)
	k.raises = k.raises && k.g.Fencing != locker.FencingNone
	began = time.Now()
	_ = grant.Hold.Release(ctx, 0)
	k.usual = max(time.Since(began), 10*time.Microsecond)
	k.expires, k.sessions = grant.Validity.TTL != 0, h.Sessions
	return k
}

// times derives all times from the TTL, for a machine that is slower by that factor.
func (k *kit) times(ttl time.Duration, slower int) {
	k.ttl = min(ttl*time.Duration(slower), k.longest)
	k.long = min(20*k.ttl, k.longest)
	second := time.Second * time.Duration(slower)
	k.soon = min(max(k.ttl, second), 3*second)
	k.patience = 10*k.soon + k.g.DeadHolderSlack
	k.slow = k.patience / 2
	k.air = 100 * time.Millisecond * time.Duration(slower)
	k.tol, k.promptly = k.ttl/4+k.air/2, k.air+k.ttl/8
	k.wake, k.coarse = k.soon/2, time.Second+k.tol
	if k.virtual {
		k.slow = k.soon
		k.tol, k.air, k.promptly = 20*time.Millisecond, 5*time.Millisecond, 100*time.Millisecond
		k.wake, k.coarse = 15*time.Millisecond, k.tol
	}
}

func (k *kit) history() *history {
	return &history{began: time.Now(), virtual: k.virtual, alike: map[*attempt]bool{}}
}

// hook calls hooks of the harness, one at a time.
func (k *kit) hook(f func()) {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	f()
}

func (k *kit) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// happen causes a server event.
func (k *kit) happen(t *recorder, event server) {
	k.hook(func() {
		switch event {
		case byRestart:
			k.h.Restart(t)
		case byFailover:
			k.h.Failover(t)
		case byCrash:
			t.Cleanup(k.h.Crash(t, k.g.ServerCrashes))
		case byHang:
			t.Cleanup(k.h.Hang(t, k.g.ServerCrashes))
		case byJump:
			k.h.JumpClock(t, time.Hour)
			t.Cleanup(func() { k.h.JumpClock(t, -time.Hour) })
		case byJumpBack:
			k.h.JumpClock(t, -time.Hour)
			t.Cleanup(func() { k.h.JumpClock(t, time.Hour) })
		}
	})
}

// facts are what a backend has reported in any history: what it knows about one holder, it knows about
// all.
type facts struct {
	mu    sync.Mutex
	known map[string]bool
}

// keepsBack reports whether something is missing now that was reported before; told: it is reported
// now.
func (k *kit) keepsBack(what string, told bool) bool {
	k.facts.mu.Lock()
	defer k.facts.mu.Unlock()
	if k.facts.known == nil {
		k.facts.known = map[string]bool{}
	}
	k.facts.known[what] = k.facts.known[what] || told
	return k.facts.known[what] && !told
}

// knows judges missing fields of a State: those that every service knows about a holder, unless the
// harness says why this one does not, and those that an earlier State had.
func (k *kit) knows(c *call, a *attempt, named, lasts bool, st locker.State, bad func(hint, format string, args ...any)) {
	kind, fenced := "of an exclusive holder", k.g.Fencing != locker.FencingNone
	if a.req.Shared {
		kind, fenced = "of sharers", k.g.Shared == locker.SharingWithTokens
	}
	for what, is := range map[string]struct{ asked, told bool }{
		"label":          {named, st.Label != ""},
		"time":           {lasts, st.Remaining != 0},
		"token":          {fenced, st.Token != 0},
		"the waiters":    {true, st.Waiters >= 0},
		"all the labels": {a.req.Shared && named, len(st.Sharing) > 0},
	} {
		fact := fmt.Sprintf("%s %s", c.op, what)
		if is.asked && !is.told && k.h.Untold[fact] == "" && slices.Contains(told, what) {
			bad("", "no %s %s", what, kind)
		} else if is.asked && k.keepsBack(fact+" "+kind, is.told) {
			bad("", "nothing about %s %s, although it did for others", what, kind)
		}
	}
}

// told are the facts that State has about each holder.
var told = []string{"label", "time", "token"}

// SeedEnv is the environment variable with the seed of [Run] and, after a slash, the number of one
// script.
const SeedEnv = "CONFORMANCE_SEED"

// seedOf returns the seed of a run, and which of its scripts to play; -1: all.
func seedOf() (seed uint64, only int) {
	text, number, one := strings.Cut(os.Getenv(SeedEnv), "/")
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano()) % 1e6
	}
	if only, err = strconv.Atoi(number); err != nil || !one {
		only = -1
	}
	return seed, only
}

// one plays one script, and judges it.
func (k *kit) one(ctx context.Context, n int, sc script, servers func(*recorder, server)) brokenScript {
	t := newRecorder(ctx, k.check)
	b := brokenScript{n: n, sc: sc}
	var h *history
	_ = t.Do(func() { h = k.play(t, sc, func(event server) { servers(t, event) }) })
	if h != nil {
		b.found, b.slow = k.judgeAll(h), k.judge(h).slowest()
	}
	t.cancel()
	t.Close()
	b.more = t.Failures()
	return b
}

// How many scripts [RunVirtual] plays, and with go test -short.
const virtualScripts, shortVirtual = 2000, 500

// RunVirtual runs the checks and plays histories in virtual time, for backends whose service lives in
// memory and can run in a bubble of [testing/synctest]. fresh returns the harness of a new service. A
// history that breaks a promise is shortened to the fewest steps that still do.
func RunVirtual(t *testing.T, fresh func(t T) Harness) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as below
	run(t, allChecks(subject{}), inVirtualTime(fresh))
	playVirtual(t, fresh)
}

func playVirtual(t *testing.T, fresh func(t T) Harness) {
	t.Helper()
	p, err := planned(t.Name(), testing.Short())
	if err != nil {
		t.Fatal(err)
	}
	scripts, began := virtualScripts, time.Now()
	if testing.Short() {
		scripts = shortVirtual
	}
	if found := checkVirtual(t, fresh, p, scripts, mostBroken); len(found.all) > 0 {
		t.Error(p.tell(found))
	} else if p.all() {
		t.Log(tellPlayed(scripts, scripts, "a service in virtual time", began))
	}
}

// checkVirtual plays scripts, until enough of them are broken.
func checkVirtual(t *testing.T, fresh func(t T) Harness, p plan, scripts, most int) findings {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // two threads that fire timers of a bubble end a race test (Go 1.26)
	f := &facts{}
	one := func(n int, of func(k *kit) script) (b brokenScript) {
		synctest.Test(t, func(t *testing.T) {
			r := newRecorder(t.Context(), t.Name())
			h := fresh(r)
			leaks := watchLeaks(h)
			_ = r.Do(func() {
				k := newKit(r, h, true, f)
				if !p.all() {
					k.lines = longTimeline
				}
				b = k.one(r.Context(), n, of(k), k.happen)
			})
			leaks.report(r, histories)
			r.cancel()
			r.Close()
			b.more = append(b.more, r.Failures()...)
			time.Sleep(2 * time.Hour) // lets deliberate hangs end
		})
		return b
	}
	var broken []brokenScript
	for n := range scripts {
		if p.only >= 0 && n != p.only || p.steps != nil && p.only < 0 && n > 0 {
			continue
		}
		if b := one(n, func(k *kit) script { return p.script(k, n) }); b.failed() {
			if broken = append(broken, b); len(broken) >= most {
				break
			}
		}
	}
	found := byRule(broken)
	for i, b := range found.all[:min(len(found.all), most, mostShortened)] {
		found.all[i] = b.shorten(func(all []script) (brokenScript, int) {
			for i, sc := range all {
				c := one(b.n, func(k *kit) script { return k.fresh(sc, p.seed, b.n) })
				if c.breaks(b.rule()) {
					return c, i
				}
			}
			return b, -1
		})
	}
	return found
}

const (
	atOnce     = 40 // scripts played side by side on a real service
	fewAgain   = 14 // scripts that one stall may hit
	eventually = 3  // failing scripts after which a run ends, if its time is up or there were two holders
	mostBroken = 20 // failing scripts after which any run ends
)

// plan says which scripts are played, and for how long.
type plan struct {
	test     string // the test to run again
	seed     uint64
	only     int           // the number of one script; -1: all
	steps    []step        // of a script to play instead
	begin    time.Duration // how long new scripts begin; negative: only those of server events
	deadline time.Time     // of the test; zero: none
}

// planned is the plan given by the environment.
func planned(test string, short bool) (p plan, err error) {
	p = plan{test: test, begin: beginning(short)}
	p.seed, p.only = seedOf()
	p.steps, err = scriptOf()
	return p, err
}

// all reports whether all scripts are played.
func (p plan) all() bool { return p.only < 0 && p.steps == nil }

// script is the script with that number, or the plan's own steps.
func (p plan) script(k *kit, n int) script {
	sc := k.script(k.cells(), p.seed, n)
	if p.steps == nil {
		return sc
	}
	sc.steps, sc.event, sc.plain = p.steps, "", p.only < 0
	for _, st := range p.steps {
		if st.do == doServers {
			sc.event = st.server
		}
	}
	return k.fresh(sc, p.seed, n)
}

// fresh is a script with new names.
func (k *kit) fresh(sc script, seed uint64, n int) script {
	if sc.plain {
		base := fmt.Sprintf("kit-%s-plain-", k.run)
		sc.what, sc.seed, sc.names, sc.off, sc.some = "a script", 0, []string{base + "0", base + "1"}, false, false
	} else {
		sc.names = k.script(k.cells(), seed, n).names
	}
	return sc
}

func checkReal(ctx context.Context, h Harness, p plan) (found findings, log []string) {
	r := newRecorder(ctx, histories)
	leaks := watchLeaks(h)
	_ = r.Do(func() {
		k := newKit(r, h, false, &facts{})
		if !p.all() {
			k.lines = longTimeline
		}
		_ = r.Do(func() { found, log = k.real(r, p) })
	})
	r.cancel()
	r.Close()
	leaks.report(r, histories)
	found.say(brokenScript{more: r.Failures()})
	return found, log
}

// real plays as many scripts as fit in the plan, the required ones first, however long they take; then
// the scripts of each server event.
func (k *kit) real(r *recorder, p plan) (found findings, log []string) {
	if p.steps != nil {
		return k.replay(r, p), nil
	}
	k.open(r)
	began := time.Now()
	cells := k.cells()
	var broken []brokenScript
	must := musts(cells)
	left, others := slices.Clone(must), specials // the required numbers, and where the others begin
	if p.only >= 0 {
		left = []int{p.only}
	}
	patient := func() bool { // leave time for what comes afterwards
		return p.deadline.IsZero() || time.Since(began) < p.deadline.Sub(began)*2/3
	}
	var mu sync.Mutex
	played := 0
	most := min(atOnce, 4*runtime.GOMAXPROCS(0)) // side by side: fewer while the machine, or the service, is slow
	slower := began                              // when they last became fewer
	take := func(worker int) (n int, wait bool) {
		mu.Lock()
		defer mu.Unlock()
		late := time.Since(began) > p.begin
		over := len(left) == 0 && (p.only >= 0 || late) || len(broken) >= mostBroken ||
			len(broken) >= eventually && (late || slices.ContainsFunc(broken, unexplained))
		if over || p.begin < 0 || p.only >= ofEvents || !patient() || r.Context().Err() != nil {
			return -1, false
		}
		if worker >= most {
			return 0, true
		}
		played++
		if len(left) > 0 {
			n, left = left[0], left[1:]
			return n, false
		}
		for slices.Contains(must, others) {
			others++
		}
		others++
		return others - 1, false
	}
	add := func(more []brokenScript, slow bool, since time.Time) {
		mu.Lock()
		defer mu.Unlock()
		broken = append(broken, more...)
		switch {
		case !slow:
			most = min(most+1, atOnce)
		case since.After(slower): // one stall hits many scripts
			most, slower = max(2, most/2), time.Now()
		}
	}
	again := map[int]string{} // scripts that a stall explained
	note := func(b brokenScript, stalled time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		again[b.n] = fmt.Sprintf("%sthe machine, or the service, stalled for %v: %s", repeated, stalled,
			p.tell(byRule([]brokenScript{b})))
	}
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for n, wait := take(worker); n >= 0; n, wait = take(worker) {
				if wait {
					k.pause(r.Context(), k.air)
					continue
				}
				since := time.Now()
				more, slow := k.steady(note, func(k *kit) []brokenScript {
					return []brokenScript{k.one(r.Context(), n, k.script(cells, p.seed, n), func(*recorder, server) {})}
				})
				add(more, slow, since)
			}
		})
	}
	all.Wait()
	if p.only < 0 && p.begin >= 0 {
		log = append(log, tellPlayed(played, len(must), k.g.Backend, began), fmt.Sprintf("at last %d side by side", most))
		if len(left) > 0 && len(broken) == 0 {
			broken = append(broken, brokenScript{more: []string{fmt.Sprintf("only %d scripts were played of the %d that have to "+
				"be, before the test's time was over: give it more (go test -timeout), or run it where it is less busy",
				played, len(must))}})
		}
	}
	broken = append(broken, hidden(len(again), played)...)
	if (p.only < 0 || p.only >= ofEvents) && len(broken) == 0 {
		for _, event := range serverEvents {
			began := time.Now()
			more, _ := k.steady(note, func(k *kit) []brokenScript { return k.event(r, p.seed, event, p.only) })
			broken = append(broken, more...)
			if took := time.Since(began).Round(time.Millisecond); took > 0 {
				log = append(log, fmt.Sprintf("servers %s: %v", event, took))
			}
		}
	}
	if len(broken) == 0 {
		log = append(log, slices.Collect(maps.Values(again))...)
	} else if len(again) > 0 { // report a broken one only once
		log = append(log, fmt.Sprintf("%sthe machine, or the service, stalled: %s played again", repeated, count(len(again), "script")))
	}
	found = byRule(broken)
	for i, b := range found.all[:min(len(found.all), mostShortened)] {
		if patient() && b.n < ofEvents {
			found.all[i] = k.shortened(r, p, b)
		}
	}
	for i, b := range k.plain {
		s := newSpy(b, letters[i:i+1], k.history(), []string{"kit-" + k.run + "-close-" + letters[i:i+1]}, k.patience)
		ctx, cancel := context.WithTimeout(r.Context(), k.patience)
		s.close(ctx, s.names[0], k.ttl)
		cancel()
		found.merge(byRule([]brokenScript{{found: k.judgeAll(s.h.copy())}}))
	}
	return found, log
}

// musts are the numbers of the required scripts: the special ones, and a cell of each group.
func musts(cells [][]cell) (all []int) {
	for n := range specials {
		all = append(all, n)
	}
	for nth := range cells {
		all = append(all, specials+nth/2*4+nth%2) // as script counts them
	}
	return all
}

// tellPlayed says how many scripts were played. The command internal/gate looks for it.
func tellPlayed(played, least int, on string, since time.Time) string {
	return fmt.Sprintf("PLAYED: %d scripts, %d at least, on %s in %v", played, least, on, time.Since(since).Round(time.Millisecond))
}

// hidden reports that stalls explain too many failures: more than half of a run's scripts, and more
// than one stall can hit.
func hidden(again, played int) []brokenScript {
	if again <= max(fewAgain, played/2) {
		return nil
	}
	return []brokenScript{{more: []string{fmt.Sprintf("%d of %d scripts failed while the machine, or the service, stalled, "+
		"and not when they were played again: run it on a less busy machine", again, played)}}}
}

// steady repeats, at most twice, what failed while the machine did not run its goroutines, or the
// service did not answer, for a good part of the TTL. All times are then doubled, and repeats run one
// after another. slow says that there was such a stall. Repeats are logged, and too many of them fail
// the run. Two holders are reported at once, without a repeat.
func (k *kit) steady(note func(brokenScript, time.Duration), play func(k *kit) []brokenScript) (broken []brokenScript, slow bool) {
	for try := 0; ; try++ {
		own := *k
		own.run += strings.Repeat("+", try) // so that leftovers of a failure are in nobody's way
		own.times(k.ttl, 1<<try)
		if try == 1 {
			k.again <- struct{}{}
			defer func() { <-k.again }()
		}
		stop := stall.Longest()
		played := play(&own)
		stalled := stop()
		broken = nil
		for _, b := range played {
			stalled = max(stalled, b.slow)
			if b.failed() {
				broken = append(broken, b)
			}
		}
		slow = slow || stalled > own.stall(nil)
		explained := stalled > own.stall(broken) && !slices.ContainsFunc(broken, unexplained)
		if len(broken) == 0 || try == tries-1 || !explained {
			return broken, slow
		}
		note(broken[0], stalled)
	}
}

// stall is how long the machine has to stall to be the reason why scripts failed: longer than most calls may vary by,
// or than a tenth of the shortest lease that was asked for.
func (k *kit) stall(broken []brokenScript) time.Duration {
	least := max(k.ttl/10, k.air/2)
	for _, b := range broken {
		for _, st := range b.sc.steps {
			if st.ttl > 0 && (st.do == doAcquire || st.do == doWait) {
				least = min(least, st.ttl/10)
			}
		}
	}
	return least
}

// unexplained reports whether a script showed two holders without an operator's or server's part. No
// stall explains that: a lease counts from before its request, and a delay makes it shorter.
func unexplained(b brokenScript) bool {
	return b.breaks("exclusion") &&
		!slices.ContainsFunc(b.sc.steps, func(s step) bool { return s.do == doBreak || s.do == doDelete || s.do == doServers })
}

// open makes the clients that all scripts share.
func (k *kit) open(t T) {
	k.plain = nil
	for range letters {
		k.plain = append(k.plain, k.h.New(t))
	}
}

// serverEvents are all server events, in the order in which they are played. The scripts of the first
// have the numbers from ofEvents on, those of the second from twice that on, and so forth.
var serverEvents = []server{byRestart, byFailover, byCrash, byJump, byJumpBack, byHang}

const ofEvents = 1_000_000

// eventChecks are the names of the checks whose promises server events prove.
var eventChecks = map[server]string{
	byRestart: "restart", byFailover: "failover", byCrash: "server-crashes", byJump: "clock-jump", byJumpBack: "clock-jump",
	byHang: "server-crashes",
}

// event plays the scripts of a server event, or only one of them, with the harness's hook for that
// check.
func (k *kit) event(r *recorder, seed uint64, event server, only int) (broken []brokenScript) {
	cells := slices.DeleteFunc(k.events(), func(c cell) bool { return c.event != event })
	first := ofEvents * (1 + slices.Index(serverEvents, event))
	if len(cells) == 0 || only >= 0 && (only < first || only >= first+len(cells)) {
		return nil
	}
	t := newRecorder(r.Context(), eventChecks[event])
	defer t.Close()
	defer t.cancel()
	k.check = t.name
	if k.plain != nil {
		_ = t.Do(func() { k.open(t) })
		defer func() {
			for _, b := range k.plain {
				_ = b.Close()
			}
		}()
	}
	var mu sync.Mutex
	var all, coming sync.WaitGroup // of all, and of those that have not arrived yet
	happened := make(chan struct{})
	for i := range cells {
		n := first + i
		if only >= 0 && n != only {
			continue
		}
		coming.Add(1)
		all.Go(func() {
			come := sync.OnceFunc(coming.Done)
			b := k.one(r.Context(), n, k.script([][]cell{{cells[i]}}, seed, n), func(*recorder, server) { come(); <-happened })
			come()
			mu.Lock()
			defer mu.Unlock()
			broken = append(broken, b)
		})
	}
	coming.Wait()
	_ = t.Do(func() { k.happen(t, event) })
	close(happened)
	all.Wait()
	if said := t.Failures(); len(said) > 0 {
		broken = append(broken, brokenScript{more: said})
	}
	return broken
}
