package single

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// What TestSearch knows of sharers.

// sLife is whether a sharer is there, and whether its time is over.
type sLife uint8

const (
	sAbsent sLife = iota
	sLives
	sDead
)

// ttlOf is longer for every other attempt.
func ttlOf(i int) time.Duration { return time.Duration(1+i%2) * sTTL }

// ends is the time at which sharer i ends, in ms: the server's clock stands in the first.
func (l sLife) ends(i int) float64 {
	if l == sDead {
		return -1
	}
	return float64(ttlOf(i).Milliseconds())
}

// lasts is how long the keys of a lock last: until the last sharer ends, or for one TTL.
func (s *sStore) lasts() time.Duration {
	var last time.Duration
	for i, life := range s.sharers {
		if life == sLives {
			last = max(last, ttlOf(i))
		}
	}
	return cmp.Or(last, sTTL)
}

func (m *sModel) reads(i int) bool { return i < len(m.readers) && m.readers[i] == 'r' }

func (s *sStore) shared() bool { return strings.HasPrefix(s.lock, "shared ") }

// note says whose note is there (-1: nobody's), and until when it keeps sharers out.
func (s *sStore) note() (writer int, ends string) {
	if parts := strings.Split(s.lock, " "); s.shared() && len(parts) == 4 {
		writer, _ = strconv.Atoi(parts[3])
		return writer, parts[2]
	}
	return -1, ""
}

// readSharers notes who shares the lock, and looks how long its keys last.
func (m *sModel) readSharers(store *sStore, all []redis.Z, lock, set time.Duration) {
	var last time.Duration
	for _, z := range all {
		i, _ := strconv.Atoi(z.Member.(string))
		if store.sharers[i] = sDead; z.Score > 0 {
			store.sharers[i] = sLives
			last = max(last, time.Duration(z.Score)*time.Millisecond)
		}
	}
	const about = 10 * time.Second
	for _, life := range []time.Duration{lock, set} {
		if store.shared() && last > 0 && (life < last-about || life > last+about) {
			m.fail = fmt.Sprintf("the last sharer ends after %v, and a key after %v", last, life)
		}
	}
}

func (m *sModel) renew(s *sState, i int) sResult {
	return m.carryOut(s, "renew", i, func(n *Backend, r *sResult) (err error) {
		r.state, err = n.server.renew(m.t.Context(), keys("n", strconv.Itoa(i)), true, ttlOf(i), nil)
		return err
	})
}

// leave is what the hold of a sharer does to be released, and a writer for its note.
func (m *sModel) leave(s *sState, i int, undo bool) sResult {
	r := m.carryOut(s, fmt.Sprint("leave ", undo), i, func(n *Backend, r *sResult) (err error) {
		void := time.Duration(0)
		if undo {
			void = sTTL
		}
		r.state, err = n.server.release(m.t.Context(), keys("n", strconv.Itoa(i)), true, void)
		return err
	})
	if r.store.shared() && slices.Contains(r.store.sharers[:], sDead) {
		m.fail = "a dead sharer stays"
	}
	return r
}

// sharersExpire ends the times of sharers, of a note, and of the key.
func (m *sModel) sharersExpire(s sState, do func(what string, change func(*sState))) {
	for i, life := range s.store.sharers {
		if life == sLives && s.attempt[i].expired {
			do(fmt.Sprintf("sharer %d ends", i), func(s *sState) { s.store.sharers[i] = sDead })
		}
	}
	if writer, ends := s.store.note(); writer >= 0 && ends != "0" {
		do("the note ends", func(s *sState) {
			s.store.lock = strings.Replace(s.store.lock, " "+ends+" ", " 0 ", 1)
		})
	} else if !slices.Contains(s.store.sharers[:], sLives) {
		do("the key expires", func(s *sState) { s.store.lock, s.store.sharers = "", [attempts]sLife{} })
	}
}

func TestSearchFindsMistakesWithSharers(t *testing.T) {
	for name, c := range map[string]struct {
		clients, readers string
		change           []string
		finds            string
	}{
		"a reader does not look for a writer": {"AB", "r", []string{
			"elseif value ~= '' and not shared and not", "elseif false and not"}, "two holders"},
		"a writer does not look for readers": {"AB", "r", []string{
			"shared and not last then", "shared then"}, "two holders"},
		"one that leaves takes the others with it": {"ABC", "rr", []string{
			"	if last then\n		if opens", "	if false then\n		if opens"},
			"and a key after"},
		"a reader's value is not made void": {"AB", "r", []string{"if found[1 + i] then", "if false then"},
			"is settled"},
		"a renewal puts back what is gone": {"AB", "rr", []string{
			"if not last or not call('ZSCORE', lock .. ':shared', owner) then", "if not last then"}, "is settled"},
		"sharers have one TTL": {"AB", "rr", []string{
			"call('ZREMRANGEBYSCORE', set, '-inf', '(' .. now)", ""}, "a dead sharer stays"},
		"the key ends with who came last": {"AB", "rr", []string{
			"math.max(last, now + ttl) - now", "ttl"}, "and a key after"},
		"the key ends with who was the last": {"AB", "rr", []string{
			"call('PEXPIRE', lock, last - now + 1000)", ""}, "and a key after"},
		"a note that stays": {"AB", "r", []string{"local opens = writer ~= ''", "local opens = false"},
			"its note is there"},
		"each reader draws a token": {"AB", "rr", []string{"return tonumber(shared)", "return granted(lock)"},
			"sharers have the tokens"},
		"a repeated request draws a token": {"AB", "rr", []string{
			"return {1, tonumber(shared)}", "return granted(lock)"}, "sharers have the tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, c.clients, c.readers, c.change...)
			m.repeats, m.quiet = 1, true
			_, broken := m.search()
			assert.Contains(t, broken, c.finds)
		})
	}
}
