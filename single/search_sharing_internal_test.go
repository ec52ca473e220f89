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

	"github.com/golockers/locker/internal/redisnode"
)

// What TestSearch knows of sharers.

// sLife is whether a sharer is there, and whether its time is over.
type sLife uint8

const (
	sAbsent sLife = iota
	sLives
	sStays // released, and kept
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

// member is how sharer i stands in the set.
func (l sLife) member(i int) string {
	if l == sStays {
		return strconv.Itoa(i) + redisnode.Kept
	}
	return strconv.Itoa(i)
}

// lasts is how long the keys of a lock last: until the last sharer ends, or for one TTL.
func (s *sStore) lasts() time.Duration {
	var last time.Duration
	for i, life := range s.sharers {
		if life == sLives || life == sStays {
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
		member, kept := strings.CutSuffix(z.Member.(string), redisnode.Kept)
		i, _ := strconv.Atoi(member)
		if store.sharers[i] = sDead; z.Score > 0 {
			if store.sharers[i] = sLives; kept {
				store.sharers[i] = sStays
			}
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
		r.state, err = on(n).renew(m.t.Context(), keys("n", strconv.Itoa(i)), true, ttlOf(i))
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
		r.state, err = on(n).release(m.t.Context(), keys("n", strconv.Itoa(i)), true, void)
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
		if (life == sLives || life == sStays) && s.attempt[i].mayEnd(life == sStays) {
			do(fmt.Sprintf("sharer %d ends", i), func(s *sState) { s.store.sharers[i] = sDead })
		}
	}
	if writer, ends := s.store.note(); writer >= 0 && ends != "0" {
		do("the note ends", func(s *sState) {
			s.store.lock = strings.Replace(s.store.lock, " "+ends+" ", " 0 ", 1)
		})
	} else if !slices.Contains(s.store.sharers[:], sLives) && !slices.Contains(s.store.sharers[:], sStays) {
		do("the key expires", func(s *sState) { s.store.lock, s.store.sharers = "", [attempts]sLife{} })
	}
}

func TestSearchFindsMistakesWithKeeping(t *testing.T) {
	for name, c := range map[string]struct {
		readers string
		change  []string
		finds   string
	}{
		"a release keeps nothing": {"", []string{"call('SET', lock, value .. KEPT, 'KEEPTTL')",
			"call('DEL', lock)"}, "two holders"},
		"what is kept is still had": {"", []string{"value .. KEPT, 'KEEPTTL'", "value, 'KEEPTTL'"}, "is released"},
		"what is kept is not removed": {"", []string{" and not owns(value, owner .. KEPT) then", " then",
			"owns(value, owner) or owns(value, owner .. KEPT)", "owns(value, owner)"},
			"is settled"},
		"a sharer's release keeps nothing": {"r", []string{"call('ZADD', set, now + keep, owner .. KEPT)",
			"if call('EXISTS', set) == 0 then return call('DEL', lock) end"}, "two holders"},
		"what is kept for a sharer is still had": {"rr", []string{"now + keep, owner .. KEPT", "now + keep, owner"},
			"is released"},
		"what is kept for a sharer is not removed": {"r", []string{"leaves, leaves .. KEPT", "leaves"}, "is settled"},
		"the key ends with what is kept": {"rr", []string{
			"tonumber(call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]) - now + 1000", "keep"}, "and a key after"},
	} {
		finds(t, name, "AB", c.readers, c.change, c.finds, func(m *sModel) { m.keepers = "kk" })
	}
	// A late Pass ends what is kept: see driver.Passer.
	finds(t, "a lock is kept after a Pass", "AAB", "", nil, "two holders", func(m *sModel) { m.keepers, m.passed = "k", true })
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
		"a reader's value is not made void": {"AB", "r", []string{"if voided[k] then", "if false then"},
			"is settled"},
		"a renewal puts back what is gone": {"AB", "rr", []string{
			"if not last or not call('ZSCORE', KEYS[k + 1], owner) then", "if not last then"}, "is settled"},
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
			"return {AGAIN, tonumber(shared)}", "return granted(lock)"}, "sharers have the tokens"},
	} {
		finds(t, name, c.clients, c.readers, c.change, c.finds, func(*sModel) {})
	}
}
