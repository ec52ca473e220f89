package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// player plays one script.
type player struct {
	k       *kit
	t       *recorder
	sc      script
	h       *history
	r       *rand.Rand
	clients [len(letters)]*spy
	own     [len(letters)]bool // made for this script
	calls   sync.WaitGroup
	seen    map[int]*call // the last Inspect of a name
	servers func(server)  // where scripts of one event wait for each other
}

// play plays a script, and returns its history.
func (k *kit) play(t *recorder, sc script, servers func(server)) *history {
	p := &player{k: k, t: t, sc: sc, h: k.history(), r: rand.New(rand.NewPCG(sc.seed, 1)), seen: map[int]*call{},
		servers: servers}
	p.h.seed = sc.seed
	ctx := t.Context()
	for _, st := range sc.steps {
		p.step(ctx, st)
	}
	p.finish(ctx)
	p.close(ctx)
	return p.h.copy()
}

// client returns a client of the service, which may have been used before.
func (p *player) client(who int) *spy {
	if s := p.clients[who]; s != nil {
		return s
	}
	k := p.k
	var b driver.Backend
	var line Fault
	k.hook(func() {
		switch {
		case p.sc.cut(who) && p.sc.some:
			b, line = k.h.CutSome(p.t, p.sc.minority(who, k.g.ServerCrashes))
		case p.sc.cut(who) && k.h.Cut != nil:
			b, line = k.h.Cut(p.t)
		case who == 2 && p.sc.off && k.h.OffClock != nil:
			b = k.h.OffClock(p.t, 2*k.long)
		case who == 3 && p.sc.off && k.h.OffClock != nil:
			b = k.h.OffClock(p.t, -2*k.long)
		case k.plain != nil && !slices.ContainsFunc(p.sc.steps, func(st step) bool { return st.do == doClose && st.who == who }):
			b = k.plain[who]
			return
		default:
			b = k.h.New(p.t)
		}
		p.own[who] = true
	})
	s := newSpy(b, letters[who:who+1], p.h, p.sc.names, k.patience)
	s.line, s.some = line, p.sc.some && line != nil
	p.clients[who] = s
	if p.own[who] {
		p.t.Cleanup(func() { _ = b.Close() })
	}
	if line != nil { // so that the next data is a request, not the start of a connection
		ctx, cancel := context.WithTimeout(p.t.Context(), k.soon)
		defer cancel()
		grant, err := acquire(ctx, b, driver.Request{Name: p.sc.names[0] + "-warm-" + s.who, Owner: owner(), TTL: k.ttl,
			Lost: func() {}, Queued: func() {}})
		if err == nil {
			_, _ = grant.Hold.Renew(ctx)
			_ = grant.Hold.Release(ctx, 0)
		}
	}
	return s
}

func (p *player) step(ctx context.Context, st step) {
	s, name := p.client(st.who), p.sc.names[st.name%len(p.sc.names)]
	if s.isClosed() && st.do != doPause && st.do != doServers && st.do != doDelete {
		return
	}
	switch st.do {
	case doAcquire:
		a := p.h.attempt(s.who, p.request(st, name))
		p.call(ctx, s, st, func(ctx context.Context) { _, _ = s.acquire(ctx, a, func() {}) })
	case doWait:
		req := p.request(st, name)
		p.wait(ctx, s, st, req)
	case doPause:
		p.k.pause(ctx, st.ttl)
	case doFault:
		if s.line != nil {
			p.h.line(s, st.fault)
		}
	case doCancel:
		s.cancel()
	case doFinish:
		p.answered(s)
	case doClose:
		if p.own[st.who] {
			s.close(p.patient(ctx), name, p.k.ttl)
		}
	case doServers:
		c := p.h.add(&call{op: opServers, who: string(st.server), name: name})
		p.servers(st.server)
		p.h.end(c)
	case doDelete:
		if p.k.h.Delete != nil {
			p.h.tick()
			c := p.h.add(&call{op: opDelete, who: "operator", name: name})
			p.h.tick()
			p.k.hook(func() { p.k.h.Delete(p.t, name) })
			p.h.tick()
			p.h.end(c)
		}
	case doInspect:
		p.call(ctx, s, st, func(ctx context.Context) {
			if c := s.inspect(ctx, name); c != nil {
				p.h.change(func() { p.seen[st.name] = c })
			}
		})
	case doBreak:
		var seen *call
		p.h.change(func() { seen = p.seen[st.name] })
		p.call(ctx, s, st, func(ctx context.Context) { s.breaks(ctx, seen) })
	case doList:
		runes := []rune(name)
		prefix := string(runes[:len(runes)-p.r.IntN(min(len(runes), 4))])
		p.call(ctx, s, st, func(ctx context.Context) { s.list(ctx, prefix, st.old > 0) })
	case doListen:
		if s.stops[name] == nil {
			s.stops[name] = s.listen(p.patient(ctx), name, nil)
		}
	case doStop:
		if stop := s.stops[name]; stop != nil {
			stop()
			delete(s.stops, name)
		}
	default:
		if a := p.target(s, st, name); a != nil {
			p.onHold(ctx, s, st, a)
		}
	}
}

// onHold is a step with the present or past hold of an attempt.
func (p *player) onHold(ctx context.Context, s *spy, st step, a *attempt) {
	do := st.do
	if p.h.grantedAt(a).IsZero() { // take back an unknown outcome completely
		if do == doRenew || do == doTwice || do == doPass || do == doRaise || do == doAgain {
			return
		}
		do = doUndo
	}
	switch do {
	case doAgain:
		lasts := p.k.judge(p.h.copy()).held[a].to.After(time.Now().Add(p.k.soon / 4))
		well := p.k.g.Scope >= locker.ScopeNetwork && p.h.broken(s.who) == noFault && !p.h.disturbed()
		if !a.last && !a.req.Wait && !s.some && lasts && well {
			if st.yield && p.k.g.Shared != locker.SharingNone { // the same owner, in the other kind
				req := a.req
				req.Shared = !req.Shared
				a = p.h.attempt(s.who, req)
			}
			p.call(ctx, s, st, func(ctx context.Context) { _, _ = s.acquire(ctx, a, func() {}) })
		}
	case doRenew:
		p.call(ctx, s, st, func(ctx context.Context) { _ = s.ask(ctx, opRenew, a) })
	case doTwice:
		p.calls.Go(func() { _ = s.ask(p.patient(ctx), opRenew, a) })
		p.call(ctx, s, st, func(ctx context.Context) { _ = s.ask(ctx, opRenew, a) })
	case doRelease:
		a.last = true
		p.call(ctx, s, st, func(ctx context.Context) { _ = p.release(ctx, s, a, st.yield) })
	case doUndo:
		a.last = true
		p.call(ctx, s, st, func(ctx context.Context) {
			_ = p.undo(ctx, s, a)
		})
	case doPass:
		if a.req.Shared {
			return
		}
		a.last = true
		next := p.request(st, a.req.Name)
		next.Shared = false
		p.call(ctx, s, st, func(ctx context.Context) { s.pass(ctx, a, next, st.yield) })
	case doRaise:
		if a.req.Shared || p.k.g.Fencing == locker.FencingNone {
			return
		}
		token := p.h.lastToken(a.req.Name)
		if more := int64(st.ttl); more == highToken {
			token = max(token, highToken)
		} else if more >= 0 || token > uint64(-more) {
			token += uint64(more)
		}
		p.call(ctx, s, st, func(ctx context.Context) { s.raise(ctx, a, token) })
	}
}

// undo takes back what may be left of a. When nothing can be left, no server has anything.
func (p *player) undo(ctx context.Context, s *spy, a *attempt) error {
	err := s.ask(ctx, opUndo, a)
	if err == nil && s.some && p.k.h.Left != nil {
		c := p.h.add(&call{op: opLeftover, who: s.who, name: a.req.Name, of: a})
		var left []string
		p.k.hook(func() { left = p.k.h.Left(p.t, a.req.Name) })
		p.h.change(func() { c.left = left })
		p.h.end(c)
	}
	return err
}

// target is the attempt of a step.
func (p *player) target(s *spy, st step, name string) *attempt {
	all := p.h.holds(s.who, name)
	if len(all) == 0 {
		return nil
	}
	return all[max(0, len(all)-1-st.old)]
}

// release releases a's hold as the engine does: under MinHold with the time that is left, unless it is
// given back.
func (p *player) release(ctx context.Context, s *spy, a *attempt, back bool) error {
	if keep := p.keep(a); keep > 0 && !back {
		return s.askFor(ctx, opKeep, a, keep)
	}
	return s.ask(ctx, opRelease, a)
}

// keep is how much longer MinHold keeps the lock of a.
func (p *player) keep(a *attempt) time.Duration {
	left := a.req.MinHold - time.Since(p.h.grantedAt(a))
	if a.req.MinHold == 0 || left <= 0 {
		return 0
	}
	return left + driver.Drift(left)
}

func (p *player) request(st step, name string) driver.Request {
	ttl := st.ttl
	if ttl == 0 {
		ttl = p.k.long
	}
	return driver.Request{Name: name, Owner: p.h.owner(name), Label: st.label, TTL: ttl, MinHold: st.min,
		Shared: st.shared}
}

// patient is a context for healthy calls.
func (p *player) patient(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, p.k.patience)
	p.t.Cleanup(cancel)
	return ctx
}

// limited is the context of a step's call.
func (p *player) limited(ctx context.Context, st step) (context.Context, context.CancelFunc) {
	switch st.limit {
	case brief:
		return context.WithTimeoutCause(ctx, p.k.ttl/5, errCause)
	case middle:
		ctx, because := context.WithCancelCause(ctx)
		cancel := func() { because(errCause) }
		after := time.Duration(p.r.Int64N(int64(2 * p.k.usual)))
		if st.do == doWait {
			after = time.Duration(p.r.Int64N(int64(p.k.ttl / 4)))
		}
		timer := time.AfterFunc(after, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	case beyond:
		ctx, because := context.WithCancelCause(ctx)
		because(errCause)
		return ctx, func() {}
	case never:
		return endless{ctx}, func() {}
	}
	return context.WithTimeout(ctx, p.k.patience)
}

// call makes a call, and waits until it is answered or clearly will not be.
func (p *player) call(ctx context.Context, s *spy, st step, f func(context.Context)) {
	ctx, cancel := p.limited(ctx, st)
	done := make(chan struct{})
	sent := s.sent()
	p.calls.Go(func() {
		defer close(done)
		defer cancel()
		f(ctx)
	})
	if s.some || p.h.broken(s.who) == noFault {
		await(p.k.patience+p.k.soon, done)
		return
	}
	for began := time.Now(); s.sent() == sent && time.Since(began) < p.k.soon/2 && !await(time.Millisecond, done); {
	}
	await(p.k.ttl/20, done)
}

// wait makes a client wait, and returns when it is in line.
func (p *player) wait(ctx context.Context, s *spy, st step, req driver.Request) {
	ctx, cancel := p.limited(ctx, st)
	if st.limit == whole {
		cancel()
		ctx, cancel = context.WithCancel(p.t.Context())
	}
	asked := make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	poll := 10 * time.Second
	if !p.k.notifies {
		poll = p.k.ttl / 10
	}
	p.calls.Go(func() {
		defer once()
		defer cancel()
		s.wait(ctx, req, poll, once)
	})
	await(p.k.soon/2, asked)
	p.k.pause(ctx, p.k.air/5)
}

// answered waits for the calls of a client, unless another is in their way.
func (p *player) answered(s *spy) {
	for began := time.Now(); time.Since(began) < p.k.soon; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.under)
		s.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

func (s *spy) sent() int64 {
	if s.line == nil {
		return 0
	}
	return s.line.Sent()
}

// await waits for done, at most for d.
func await(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// finish ends everything that is or may be held, and takes each name once more.
func (p *player) finish(ctx context.Context) {
	mend := func(some bool) {
		for _, s := range p.clients {
			if s != nil && s.line != nil && s.some == some && p.h.broken(s.who) != noFault {
				p.h.line(s, noFault)
			}
		}
	}
	mend(false)
	done := make(chan struct{})
	go func() {
		p.calls.Wait()
		close(done)
	}()
	settled := map[*attempt]bool{}
	var ends sync.WaitGroup
	waiting := time.Duration(p.r.Int64N(int64(p.k.soon + p.k.ttl)))
	for began := time.Now(); ; {
		answered := await(p.k.air/20, done)
		p.end(ctx, settled, &ends)
		if answered {
			break
		}
		if time.Since(began) > waiting {
			for _, s := range p.clients {
				if s != nil {
					s.cancel()
				}
			}
		}
		if time.Since(began) > p.k.patience+p.k.soon+p.k.ttl { // the history shows what has not returned
			break
		}
	}
	if p.sc.some { // endings that some servers learn of later
		p.k.pause(ctx, waiting/4)
		mend(true)
	}
	ends.Wait()
	p.end(ctx, settled, &ends)
	ends.Wait()
	for i, name := range p.sc.names {
		// Nobody asks for leftovers, unless they stay until somebody does.
		if p.k.g.DeadHolder != locker.RecoveryWatched && p.r.IntN(2) == 0 {
			p.leftovers(name, 2*time.Second)
		}
		if p.free(ctx, name) && p.r.IntN(2) == 0 {
			p.free(ctx, name) // each holder gets a greater token
		}
		p.client(prober).inspect(p.patient(ctx), name)
		p.leftovers(name, 0)
		if i == 0 {
			p.client(prober).list(p.patient(ctx), name, false)
		}
	}
}

// end ends all attempts so far: it renews and releases what is held, and takes back what may be there,
// as the engine does.
func (p *player) end(ctx context.Context, settled map[*attempt]bool, ends *sync.WaitGroup) {
	for _, s := range p.clients {
		if s == nil || s.isClosed() {
			continue
		}
		for _, name := range p.sc.names {
			for _, a := range p.h.holds(s.who, name) {
				if !settled[a] && !p.h.isAsked(a) {
					settled[a] = true
					how := p.r.IntN(4)
					ends.Go(func() { p.endOne(ctx, s, a, how) })
				}
			}
		}
	}
}

func (p *player) endOne(ctx context.Context, s *spy, a *attempt, how int) {
	told, ended := !p.h.grantedAt(a).IsZero(), a.last
	if told && (!a.last || how == 0) {
		_ = s.ask(p.patient(ctx), opRenew, a)
		kept := p.keep(a) > 0
		if a.last = true; !kept || how != 2 { // else it is given back
			ended = !kept
			err := p.release(p.patient(ctx), s, a, false)
			if how == 1 {
				err = p.release(p.patient(ctx), s, a, false)
			}
			for kept && how == 3 && err != nil && !errors.Is(err, locker.ErrLost) && p.keep(a) > 0 && ctx.Err() == nil {
				time.Sleep(p.k.air / 10) // until it is confirmed, with the time left: an Undo would let another in
				err = p.release(p.patient(ctx), s, a, false)
			}
			if kept && how == 3 && err == nil && len(a.earlier) == 0 {
				return // it expires by itself
			}
		}
	}
	a.last = true
	within := p.k.life(a) + p.k.soon
	if !p.k.virtual {
		within = min(within, p.k.patience)
	}
	pause := p.k.air / 10
	for began := time.Now(); ctx.Err() == nil && !(told && ended && p.k.gone(p.h, a)); {
		if p.undo(p.patient(ctx), s, a) == nil || time.Since(began) > within {
			break
		}
		time.Sleep(pause)
		pause = min(2*pause, max(p.k.ttl/5, within/20))
	}
	for _, hold := range a.earlier {
		_ = hold.Undo(p.patient(ctx))
	}
}

// free takes and releases a name. It reports whether it got it.
func (p *player) free(ctx context.Context, name string) bool {
	s := p.client(prober)
	over := p.over(name)
	within := time.Until(over)
	if !p.k.virtual || !over.Before(far) {
		within = min(within, p.k.patience)
	}
	// A sharer joins a dead one, and then nobody may have checked the dead one's end.
	watched := p.k.g.DeadHolder == locker.RecoveryWatched
	shared := p.k.g.Shared != locker.SharingNone && p.r.IntN(4) == 0 && !watched
	pause := p.k.air / 20
	began := time.Now()
	for ctx.Err() == nil {
		a := p.h.attempt(s.who, driver.Request{Name: name, Owner: p.h.owner(name), Label: "prober", TTL: p.k.long,
			Shared: shared})
		asked := time.Now()
		_, err := s.acquire(p.patient(ctx), a, func() {})
		if err == nil {
			_ = s.ask(p.patient(ctx), opRenew, a)
			s.inspect(p.patient(ctx), name)
			s.list(p.patient(ctx), name, false)
			_ = s.ask(p.patient(ctx), opRelease, a)
			return true
		}
		if time.Since(began) > within || !refused(err) {
			if !refused(err) {
				asked = time.Now() // it has waited in vain
			}
			if asked.After(over) && !errors.Is(err, locker.ErrUnavailable) {
				p.h.happened(&call{op: opLeftover, who: s.who, name: name})
			}
			return false
		}
		p.k.pause(ctx, pause)
		pause = min(2*pause, max(p.k.ttl/10, within/20))
	}
	return false
}

// over is when certainly nothing of a name can be there any more.
func (p *player) over(name string) time.Time {
	over := time.Now()
	j := p.k.judge(p.h.copy())
	for _, a := range j.attempts {
		if a.req.Name == name {
			there := j.may[a].to.Add(p.k.soon)
			asked := slices.ContainsFunc(j.about[a], func(c *call) bool { return c.op == opRelease || c.op == opKeep || c.op == opUndo })
			if rest := j.rest(a); j.closedAt(a.who) != nil || !asked { // nobody removes it
				there = latest(there, rest)
			} else { // a release removes it everywhere, as soon as possible
				there = latest(there, earliest(rest, time.Now().Add(4*p.k.soon)))
			}
			if a.req.Wait && !a.req.Shared {
				there = latest(there, j.gate(a).to)
			}
			if p.k.watched() { // a request now begins to watch
				there = earliest(there, time.Now().Add(p.k.life(a)+time.Second+p.k.soon))
			}
			over = latest(over, there)
		}
	}
	return over
}

// leftovers asks the harness what the service still has, some time after nothing of it may keep anybody
// out.
func (p *player) leftovers(name string, grace time.Duration) {
	if p.k.h.Left == nil || p.sc.event.takesSome() || slices.ContainsFunc(p.sc.steps, func(s step) bool { return s.do == doDelete }) {
		return
	}
	var left []string
	over := p.over(name)
	if time.Until(over) > p.k.patience {
		return
	}
	for pause := p.k.air / 10; ; time.Sleep(pause) {
		pause = min(2*pause, p.k.ttl/5)
		late := time.Now().After(over.Add(p.k.air + grace))
		p.k.hook(func() { left = p.k.h.Left(p.t, name) })
		if len(left) == 0 {
			return
		}
		if late {
			break
		}
	}
	p.h.happened(&call{op: opLeftover, who: "harness", name: name, left: left})
}

// close stops listening, and closes the script's own clients.
func (p *player) close(ctx context.Context) {
	for i, s := range p.clients {
		if s == nil {
			continue
		}
		for _, stop := range s.stops {
			stop()
		}
		if p.own[i] && !s.isClosed() {
			s.close(p.patient(ctx), p.sc.names[0], p.k.ttl)
		}
	}
}

// isAsked reports whether a call about a is unanswered.
func (h *history) isAsked(a *attempt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.calls, func(c *call) bool {
		return (c.of == a || c.next == a) && c.asks() && c.ended.IsZero() && c.ctxEnded.IsZero()
	})
}

// grantedAt is when the holder of a learned of its grant; zero: never.
func (h *history) grantedAt(a *attempt) (at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.granted(a) && c.op != opRenew {
			return c.ended
		}
	}
	return at
}

// disturbed reports whether an operator or a server event was involved.
func (h *history) disturbed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.calls, func(c *call) bool {
		return c.op == opDelete || c.op == opBreak || c.op == opServers
	})
}

// lastToken is the highest token seen for a name.
func (h *history) lastToken(name string) (token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.name == name {
			token = max(token, c.grant.Token)
		}
	}
	return token
}

// broken is the present fault of a client's connection.
func (h *history) broken(who string) fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.outages {
		if o.who == who && o.to.IsZero() {
			return o.fault
		}
	}
	return noFault
}

// cut reports whether the connection of a client can be broken.
func (s script) cut(who int) bool {
	return who == subject_ || slices.ContainsFunc(s.steps, func(st step) bool { return st.do == doFault && st.who == who })
}

// minority is a number of servers, different for the clients of a script.
func (s script) minority(who, n int) (servers []int) {
	if who == other {
		who = 2 // the third client with broken connections
	}
	for i := range n {
		servers = append(servers, (int(s.seed%64)+who*n+i)%(2*n+1))
	}
	return servers
}

func (s script) tellNames() string {
	var names []string
	for _, n := range s.names {
		names = append(names, fmt.Sprintf("%.60q", n))
	}
	return strings.Join(names, ", ")
}
