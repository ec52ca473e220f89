package cas

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The search plays interleavings of some clients, each of which asks for one name until it has it, may
// renew, and releases or dies, or is kept and comes back once, as a copy of a request that is late
// does, or breaks whom it has seen; of their requests, which are served and answered late or never; and
// of time, in ticks. What a client has written last, it takes for the record, until that is refused.

const (
	tick  = time.Second
	ttl   = 2 // ticks
	keeps = 3 // of MinHold
)

type phase uint8

const (
	loading  phase = iota // its Load is under way
	loaded                // the answer is, or it is the record that the client has written last
	swapping              // its Swap is under way
	swapped               // the answer is
	holding
	over // it has released, also what is kept, died, or settled its take-back
)

// task is what a client is about.
type task uint8

const (
	asks task = iota
	renews
	keeping // releases while MinHold lasts
	undoes  // or releases, which is the same for the record
	inspects
	breaks
)

// request is a Swap.
type request struct {
	version uint64
	next    record
	v       verdict
	target  string // of a Break
	since   int    // the tick in which it was sent
}

type client struct {
	phase
	task
	shared, min bool
	kept        bool // releases while MinHold lasts
	renewed     bool // once is enough
	late        bool // it is a copy that is late, and asks once
	mine        bool // what it has seen is what it has written last
	broken      bool // somebody has broken it
	sent        int  // the tick of its Load
	age         int  // of what it has seen
	seen        record
	sight       sight
	request
	ok       bool // the answer to its Swap
	until    int  // its lease
	promised int  // MinHold lasts so long for others
	keep     int  // and so long for itself
	token    uint64
	given    []request // that it has given up, and that may arrive
}

type world struct {
	now     int
	lost    int // how many replies may yet be lost
	store   record
	written int // the tick of the last write
	clients [4]client
	n       int
	ages    bool
	highest uint64 // token
}

// flaw is what a test of the search does wrong.
type flaw string

type searcher struct {
	flaw   flaw
	seen   map[uint64]bool
	broken string
}

func at(n int) time.Time { return time.Unix(0, 0).Add(time.Duration(n) * tick) }

func owner(i int) string { return string(rune('A' + i)) }

func (w world) with(i int, f func(c *client)) world {
	f(&w.clients[i])
	return w
}

// key is the same for worlds that differ in nothing that matters: beats and versions count by their order, tokens from
// the last one, and times from now and no further back than a holder can last.
func (w *world) key(f flaw) uint64 {
	var all []uint64
	note := func(r record) {
		all = append(all, r.Seq)
		for _, e := range slices.Concat(r.Holders, r.Notes) {
			all = append(all, e.Beat)
		}
	}
	note(w.store)
	for _, c := range w.clients[:w.n] {
		note(c.seen)
		note(c.next)
		for b := range c.sight {
			all = append(all, b.n)
		}
		for _, l := range c.given {
			note(l.next)
			all = append(all, l.version)
		}
		all = append(all, c.version)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	rank := func(n uint64) int { i, _ := slices.BinarySearch(all, n); return i }
	var key []byte
	add := func(all ...int) {
		for _, n := range all {
			key = binary.AppendVarint(key, int64(n))
		}
	}
	is := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	since := func(n int) int { return min(w.now-n, w.most()) }
	tell := func(r record) {
		add(rank(r.Seq), int(w.store.Last-r.Last), len(r.Holders), len(r.Notes))
		for _, e := range slices.Concat(r.Holders, r.Notes) {
			key = append(key, e.Owner...)
			add(rank(e.Beat), int(e.Lasts/time.Millisecond), min(int(e.Seen/tick), w.most()), int(w.store.Last-e.Token), is(e.Kept))
		}
	}
	add(w.lost, int(w.highest-w.store.Last))
	if w.ages {
		add(since(w.written))
	}
	tell(w.store)
	for _, c := range w.clients[:w.n] {
		add(int(c.phase), int(c.task), is(c.renewed), is(c.late), is(c.mine), is(c.broken), is(c.ok),
			max(c.until-w.now, 0), max(c.promised-w.now, 0), max(c.keep-w.now, 0), is(c.v.granted), rank(c.version), len(c.given), len(c.sight))
		if f != "" { // else nobody looks at it
			add(since(c.sent))
		}
		if w.ages && c.phase == loaded && !c.mine {
			add(min(c.age, w.most()))
		}
		key = append(key, c.target...)
		if c.phase == swapping || c.phase == swapped {
			add(since(c.since))
		}
		if c.until > w.now {
			add(int(w.store.Last - c.token))
		}
		tell(c.seen)
		tell(c.next)
		for _, l := range c.given {
			add(rank(l.version))
			tell(l.next)
		}
		beats := slices.Collect(maps.Keys(c.sight))
		slices.SortFunc(beats, func(a, b beat) int { return cmp.Or(cmp.Compare(a.n, b.n), strings.Compare(a.owner, b.owner)) })
		for _, b := range beats {
			key = append(key, b.owner...)
			add(rank(b.n), since(int(c.sight[b].Unix())))
		}
	}
	return maphash.Bytes(seed, key)
}

var seed = maphash.MakeSeed()

// most is how long a holder can last.
func (w *world) most() int {
	if slices.ContainsFunc(w.clients[:w.n], func(c client) bool { return c.min }) {
		return keeps
	}
	return ttl
}

// trail is how a world came about.
type trail struct {
	before *trail
	who    int
	step   string
}

func (t *trail) String() string {
	if t == nil {
		return ""
	}
	return fmt.Sprint(t.before, t.who, t.step, "; ")
}

// search goes on from w, in every way.
func (s *searcher) search(w world, path *trail) {
	key := w.key(s.flaw)
	if s.broken != "" || s.seen[key] {
		return
	}
	s.seen[key] = true
	if why := w.wrong(); why != "" {
		s.broken = fmt.Sprintf("%s after %v", why, path)
		return
	}
	s.steps(w, func(next world, step string, i int) {
		s.search(next, &trail{path, i, step})
	})
}

// walk goes on from w in one way, which chance decides, for so many steps.
func (s *searcher) walk(w world, r *rand.Rand, steps int) {
	var path *trail
	for range steps {
		var ways []world
		var trails []*trail
		s.steps(w, func(next world, step string, i int) {
			ways, trails = append(ways, next), append(trails, &trail{path, i, step})
		})
		if chance := r.IntN(len(ways)); chance > 0 || r.IntN(4) == 0 { // the first is that time passes
			w, path = ways[chance], trails[chance]
		}
		if why := w.wrong(); why != "" || s.broken != "" {
			s.broken = fmt.Sprintf("%s%s after %v", s.broken, why, path)
			return
		}
	}
}

// steps are what can come next.
func (s *searcher) steps(w world, then func(next world, step string, i int)) {
	next := w
	next.now++
	then(next, " tick", w.now)
	for i := range w.clients[:w.n] {
		for n, l := range w.clients[i].given {
			next := w.with(i, func(c *client) { c.given = slices.Delete(slices.Clone(c.given), n, n+1) })
			if l.version == w.store.Seq {
				s.apply(&next, l)
			}
			then(next, " late", i)
		}
		s.client(w, i, then)
	}
}

// apply carries out a Swap.
func (s *searcher) apply(w *world, r request) {
	for i := range w.clients[:w.n] {
		c, was, is := &w.clients[i], indexOf(w.store.Holders, owner(i)), indexOf(r.next.Holders, owner(i))
		if is >= 0 && r.next.Holders[is].Kept {
			before, after := w.store.Holders[was], r.next.Holders[is]
			if before.Seen = after.Seen; before.Kept && before != after {
				s.broken = fmt.Sprintf("%d is kept anew", i)
			}
			if !before.Kept && c.task == keeping {
				c.promised = max(c.promised, w.now+int(after.Lasts/tick))
			}
		} else if is >= 0 && was >= 0 && w.store.Holders[was].Kept && w.store.Holders[was].Token == r.next.Holders[is].Token {
			s.broken = fmt.Sprintf("%d was kept, and holds again", i)
		}
		if r.target != "" && was >= 0 && is < 0 {
			if w.store.Holders[was].holder() == r.target {
				c.broken = true
			} else if c.until > w.now {
				s.broken = fmt.Sprintf("%d is broken instead of %s", i, r.target)
			}
		}
	}
	w.store, w.written = r.next, w.now
	alone := len(r.next.Holders) == 1 // or they have one token
	if r.v.granted && (r.v.token < w.highest || r.v.token == w.highest && alone) {
		s.broken = fmt.Sprintf("token %d is given out after %d", r.v.token, w.highest)
	}
	if r.v.granted {
		w.highest = max(w.highest, r.v.token)
	}
}

// client makes the steps that one client can make.
func (s *searcher) client(w world, i int, then func(next world, step string, i int)) {
	c := w.clients[i]
	switch c.phase {
	case loading:
		then(w.with(i, func(c *client) { c.phase, c.seen, c.age = loaded, w.store, w.now-w.written }), " load served", i)
	case loaded:
		then(w.with(i, func(c *client) { s.decide(c, i, w) }), " loaded", i)
	case swapping:
		next := w.with(i, func(c *client) {
			c.phase, c.ok = swapped, c.version == w.store.Seq || s.flaw == "a Swap without a version"
		})
		if next.clients[i].ok {
			s.apply(&next, c.request)
		}
		then(next, " swap served", i)
		s.unknown(w, i, []request{c.request}, " gives up", then) // before it is served
	case swapped:
		then(w.with(i, func(c *client) { s.answered(c, w.now) }), " swapped", i)
		s.unknown(w, i, nil, " reply lost", then)
	case holding:
		if !c.renewed {
			then(w.with(i, func(c *client) { c.begins(renews, w.now) }), " renews", i)
		}
		then(w.with(i, (*client).ends), " dies", i)
		if c.keep <= w.now {
			then(w.with(i, func(c *client) { c.begins(undoes, w.now) }), " releases", i)
		} else if c.kept {
			then(w.with(i, func(c *client) { c.begins(keeping, w.now) }), " releases, and is kept", i)
		}
	case over:
		if c.task == keeping && !c.late {
			for t, step := range []string{" asks again", " renews late", " releases again"} {
				then(w.with(i, func(c *client) { c.late = true; c.begins(task(t), w.now) }), step, i)
			}
		}
	}
}

// begins: what it has written last it need not load.
func (c *client) begins(t task, now int) {
	c.task, c.phase, c.sent, c.request, c.ok = t, loading, now, request{target: c.target}, false
	switch t {
	case keeping:
		c.until, c.renewed = 0, true
	case undoes:
		c.until, c.promised, c.keep, c.renewed = 0, 0, 0, false
	}
	if c.mine {
		c.phase = loaded
	} else {
		c.seen = record{}
	}
}

func (c *client) ends() {
	c.phase, c.mine, c.renewed, c.ok, c.sight, c.seen, c.request = over, false, false, false, nil, record{}, request{}
}

// decide makes a Swap of what was loaded.
func (s *searcher) decide(c *client, i int, w world) {
	now, age := at(w.now), time.Duration(0)
	seen := now
	if s.flaw == "counted from before the Load" {
		seen = at(c.sent)
	}
	if w.ages {
		age = time.Duration(c.age) * tick
	}
	if s.flaw == "an age that counts the way" {
		age += now.Sub(at(c.sent))
	}
	if !c.mine {
		c.sight = c.sight.look(c.seen, seen, age)
	}
	r := request{version: c.seen.Seq, since: w.now, target: c.target}
	if c.seen.Holders = slices.Clone(c.seen.Holders); s.flaw == "what is kept is as held" {
		for i := range c.seen.Holders {
			c.seen.Holders[i].Kept = false
		}
	}
	write, lasts := true, ttl
	switch c.task {
	case asks:
		if c.min {
			lasts = keeps
		}
		kind := want{entry{Owner: owner(i), Client: owner(i), Shared: c.shared, Lasts: time.Duration(lasts) * tick}, true, w.ages}
		r.next, r.v, write = c.seen.acquire(kind, c.sight, now)
	case renews:
		if s.flaw != "a renewal without MinHold" {
			lasts = max(lasts, c.keep-w.now)
		}
		r.next, write = c.seen.renew(owner(i), time.Duration(lasts)*tick, c.sight, now)
	case keeping:
		lasts = max(c.keep-w.now, 1)
		if c.late {
			lasts = keeps
		}
		r.next, _ = c.seen.keep(owner(i), time.Duration(lasts)*tick, c.sight, now)
		if n := indexOf(r.next.Holders, owner(i)); n >= 0 && s.flaw == "kept since the last beat" {
			r.next.Holders[n].Seen = now.Sub(c.sight[c.seen.Holders[indexOf(c.seen.Holders, owner(i))].beat()])
		}
	case undoes:
		r.next, write = c.seen.remove(func(e entry) bool { return e.Owner == owner(i) }, c.sight, now)
		write = write || s.flaw != "Undo that finds nothing"
	case inspects:
		if write = len(c.seen.Holders) > 0; write {
			c.target = c.seen.Holders[0].holder()
			c.begins(breaks, w.now)
			return
		}
	case breaks:
		r.next, write = c.seen.remove(func(e entry) bool {
			return e.Client == "" && (e.holder() == c.target || s.flaw == "a Break of whoever holds")
		}, c.sight, now)
	}
	known := c.mine
	c.request, c.phase, c.mine = r, swapping, false
	switch {
	case write:
	case known, c.task == asks && !c.late, c.task == inspects:
		c.begins(c.task, w.now)
	default: // it is lost, or gone
		c.ends()
	}
}

// answered: its Swap was answered.
func (s *searcher) answered(c *client, now int) {
	r := c.request
	switch {
	case !c.ok:
		c.begins(c.task, now)
		return
	case c.task == asks && !r.v.granted: // its note is written
		c.begins(asks, now)
		return
	case c.task != asks && c.task != renews:
		c.ends()
		return
	}
	c.sight, c.ok = c.sight.look(r.next, at(now), 0), false
	c.phase, c.until, c.renewed, c.mine, c.seen, c.request = holding, r.since+ttl, c.task == renews, true, r.next, request{}
	if s.flaw == "Since from the reply" {
		c.until = now + ttl
	}
	if r.v.granted {
		if c.token = r.v.token; c.min {
			c.promised, c.keep = r.since+keeps, now+keeps
		}
	}
}

// unknown: there is no answer to its Swap. It takes back what it asked for, or renews again.
func (s *searcher) unknown(w world, i int, late []request, step string, then func(next world, step string, i int)) {
	c := w.clients[i]
	if w.lost == 0 {
		return
	}
	w.lost--
	w = w.with(i, func(c *client) { c.given = slices.Concat(c.given, late) })
	if c.task == breaks {
		then(w.with(i, (*client).ends), step, i)
		return
	}
	if c.task == renews || c.task == keeping {
		then(w.with(i, func(c *client) { c.begins(c.task, w.now) }), step+", tries again", i)
	}
	then(w.with(i, func(c *client) { c.begins(undoes, w.now) }), step, i)
}

// wrong says which promise is broken.
func (w *world) wrong() string {
	for i, a := range w.clients[:w.n] {
		if (a.phase == over && a.task == undoes || a.broken && !a.late) && indexOf(w.store.Holders, owner(i)) >= 0 {
			return fmt.Sprintf("%d is there although it was taken back, or broken", i)
		}
		if is := indexOf(w.store.Holders, owner(i)); is >= 0 && a.phase == over && a.task == keeping && !w.store.Holders[is].Kept {
			return fmt.Sprintf("%d holds although it has released", i)
		}
		for j, b := range w.clients[:w.n] {
			if i != j && max(a.until, a.promised) > w.now && b.until > w.now && !a.broken && !b.broken &&
				!(a.shared && b.shared && a.token == b.token) {
				return fmt.Sprintf("%d and %d hold, with tokens %d and %d", i, j, a.token, b.token)
			}
		}
	}
	return ""
}

// begin has a client for each letter: a writer, a reader, one that asks for MinHold, one that is kept
// for it as well, an operator.
func begin(f flaw, lost int, who string) (*searcher, world) {
	who, ages := strings.CutSuffix(who, " with ages")
	w := world{lost: lost, ages: ages, n: len(who)}
	for i, is := range who {
		w.clients[i].shared, w.clients[i].min, w.clients[i].kept = is == 'r', is == 'm' || is == 'k', is == 'k'
		if is == 'o' {
			w.clients[i].task = inspects
		}
	}
	return &searcher{flaw: f, seen: map[uint64]bool{}}, w
}

// Of two clients all is tried, with one reply lost, and with an operator beside them, with none; whatever time it takes
// them: what differs is finite.
func TestSearchEveryInterleaving(t *testing.T) {
	for who, lost := range map[string]int{
		"ww": 1, "wr": 1, "rr": 1, "wwo": 0, "ww with ages": 1, "wr with ages": 1, "mw with ages": 1, "kw with ages": 0,
	} {
		began := time.Now()
		s, w := begin("", lost, who)
		s.search(w, nil)
		assert.Empty(t, s.broken, who)
		t.Logf("%s: %d worlds in %v", who, len(s.seen), time.Since(began).Round(time.Millisecond))
	}
}

// Of four there are too many; chance decides.
func TestInterleavingsOfFour(t *testing.T) {
	for n, who := range []string{"wrwr", "wrwr with ages", "wrmo with ages", "wrko with ages", "wrwo"} {
		for seed := range uint64(200) {
			s, w := begin("", 2, who)
			s.walk(w, rand.New(rand.NewPCG(seed, uint64(n))), 150)
			require.Empty(t, s.broken, who)
		}
	}
}

// Both find what is wrong.
func TestSearchFindsFlaws(t *testing.T) {
	for f, who := range map[flaw][2]string{
		"counted from before the Load": {"ww", "wrwr"},
		"Undo that finds nothing":      {"ww", "wrwr"},
		"a Swap without a version":     {"ww", "wrwr"},
		"Since from the reply":         {"ww", "wrwr"},
		"an age that counts the way":   {"ww with ages", "wrwr with ages"},
		"a renewal without MinHold":    {"mw with ages", "wrmo with ages"},
		"a Break of whoever holds":     {"wwo", "wrwo"},
		"what is kept is as held":      {"kw with ages", "wrko with ages"},
		"kept since the last beat":     {"kw with ages", "wrko with ages"},
	} {
		lost := 1
		if strings.HasPrefix(who[0], "k") { // there would be too many worlds
			lost = 0
		}
		s, w := begin(f, lost, who[0])
		s.search(w, nil)
		assert.NotEmpty(t, s.broken, f)
		t.Log(s.broken)
		walks := uint64(0)
		for s.broken = ""; s.broken == "" && walks < 5000; walks++ {
			s, w = begin(f, 2, who[1])
			s.walk(w, rand.New(rand.NewPCG(walks, 1)), 150)
		}
		assert.NotEmpty(t, s.broken, f)
		t.Log(f, walks)
	}
}
