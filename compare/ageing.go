package compare

import (
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/host"
	"github.com/golockers/locker/internal/lab"
)

// ageing is the word for all of these faults in Plan.Only, and the head of their IDs.
const ageing = "ageing"

// longRun is a run that has time for them.
const longRun = 5 * time.Minute

// ageingFaults are what time brings: each is tried on servers and with holders of its own, which the lab
// starts.
func ageingFaults() (all []history.Fault) {
	for _, thing := range lab.Things {
		all = append(all, ageingFault(thing.ID))
	}
	return all
}

func ageingFault(id string) history.Fault {
	thing := lab.Things[slices.IndexFunc(lab.Things, func(t lab.Thing) bool { return t.ID == id })]
	f := history.Fault{
		ID: ageing + "-" + id, Class: history.Ageing, What: thing.What,
	}
	switch id {
	case "password", "members", "versions":
		f.Class = history.Server // nothing is declared of those who hold meanwhile, but that they hold alone
	case "fail-overs":
		f.Class = history.Failover
	}
	return f
}

// ageingTasks are the faults that time brings to a kind of service. They take a while, so that a run that
// is to be short leaves them out.
func (b *bench) ageingTasks() (tasks []*task) {
	known := lab.Ageings()
	for _, f := range ageingFaults() {
		i := slices.IndexFunc(known, func(a lab.Ageing) bool {
			return a.Service == b.kind && ageing+"-"+a.Thing == f.ID
		})
		switch {
		case b.svc.untried[f.ID] != "":
		case f.ID == ageing+"-password" && b.kind == "zookeeper":
			b.leave(f.ID, "who has another password is somebody else to ZooKeeper: rights have to be given anew")
		case i < 0:
			b.leave(f.ID, "the lab cannot bring it about on this service")
		case b.run.plan.For < longRun && len(b.run.plan.Only) == 0:
			b.leave(f.ID, "it takes a while: --for 5m or --only ageing has time for it")
		case b.run.foreign && len(b.run.plan.Only) == 0:
			b.leave(f.ID, "the lab cannot bring it about on all of these services: --only ageing tries the others")
		default:
			start := func(b *bench) service { return startAged(b, known[i]) }
			tasks = append(tasks, &task{id: f.ID, fault: f, open: start})
		}
	}
	return tasks
}

// startAged starts a service to which something happens that time brings.
func startAged(b *bench, a lab.Ageing) service {
	is := a.Start(b.stage)
	u, err := locker.ParseURL(is.URL)
	if err != nil {
		b.Fatal(err)
	}
	b.ttl = max(b.ttl, is.TTL)
	s := service{
		address: address{straight: is.URL, shown: u.String(), why: "its clients' proxies belong to the fault"},
		untried: map[string]string{},
		faults:  []serverFault{{fault: ageingFault(a.Thing), script: func(r *round) { r.ages(is) }}},
	}
	for _, p := range is.Servers {
		s.watched = append(s.watched, agedServer{p})
	}
	return s
}

// agedServer is one that only its processor time is asked of.
type agedServer struct{ *lab.Process }

func (agedServer) Addr() string { return "" }

// apart tries something on a bench of its own.
func (b *bench) apart(t *task) error {
	b.aparts++
	key := fmt.Sprintf("%s-%s-%d", b.svc.key, t.id, b.aparts)
	own := &bench{
		stage: &stage{host.Host{Dir: b.Dir + "-" + key}}, ctx: b.ctx, run: b.run, index: b.index,
		open: t.open, opens: b.opens, ttl: b.ttl, names: b.names, svc: &service{name: b.svc.name, key: key},
	}
	defer own.Close()
	defer own.quit()
	if err := own.Do(own.begin); err != nil {
		b.run.live.say("%s: %s: not tried: %v", b.svc.name, t.id, err)
		return err
	}
	t.script = own.svc.faults[0].script
	return own.round(t, own.names)
}

// ages lets it happen while locks are held and waited for. After each step a job tries to take a lock,
// which may have come later, and has not used its connections since the step before.
func (r *round) ages(is *lab.Aged) {
	const patience = 3 * time.Minute // however long it all takes
	wait := func(c *command) { c.Within, c.Again = patience, true }
	a := r.take(r.a, nil)
	next := r.b.hold(r, wait)
	r.sleep(r.ttl / 5) // long enough to be waiting
	r.faultBegin(nil, 0)
	for i, step := range is.Steps {
		proof := step(r.stage)
		if proof == "" {
			r.Fatalf("what was to happen was not seen")
		}
		if r.svc.address.straight != is.URL {
			r.svc.address.straight = is.URL
			r.c.kill()
			r.c.start()
		}
		r.proof(proof)
		within := check.ServedWindow(r.ttl) + time.Second
		meanwhile := r.c.hold(r, func(c *command) {
			c.Name += fmt.Sprintf("/meanwhile-%d", i)
			c.Within, c.Try, c.Keep = within, true, time.Millisecond
		})
		r.wait(within+time.Second, func() bool { return meanwhile.all(done) })
	}
	all := []group{a, next}
	if r.task.fault.Class == history.Ageing {
		// Those who wait began to long ago; so do others now.
		late := func(c *command) { c.Name += "/late" }
		all = append(all, r.take(r.a, late), r.b.hold(r, func(c *command) { late(c); wait(c) }))
	}
	r.sleep(13 * r.ttl / 10) // leases that cannot be renewed run out
	r.faultEnd("")
	r.finish(all...)
	r.probe()
}
