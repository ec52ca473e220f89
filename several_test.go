package locker_test

import (
	"strings"
	"testing"

	"github.com/golockers/locker"
)

func TestLockAll(t *testing.T) {
	play(t, map[string]string{
		"holds each name once, in one order": `
			p locks all of b a b; p has a b; p unlocks; a is free; b is free`,
		"tells of all that were lost, on one line": `
			p locks all of x1 x2; x1 is deleted; x2 is deleted; p unlocks: lost "x1" "x2"`,
		"holds none if one cannot be had": `
			others hold c 1h; release: 10ms
			p locks until 1s all of d c b a: held deadline in 1.01s-1.1s; a is free; b is free; d is free`,
		"tells of a loss during its wait": `
			others hold b 1h; renew: gone; p locks all of a b: lost in 2s-3s; a is free`,
		"returns with its context, whatever a release does": `
			acquire: ok then hangs; release: hangs
			p locks until 1s all of a b: unavailable deadline in 1s-1.1s; up; 5s`,
		"bounds the whole call with MaxWait": `
			others hold a 2s; others hold b 1h; p locks maxwait 3s all of b a: held in 3s-3.1s; a is free`,
		"but no first attempt": `
			acquire: 1s; p locks maxwait 500ms all of c b a: ok in 3s; p has a b c; q locks maxwait 0s all of d a: held in 0s`,
		"does not wait for itself, whatever else it would have to wait for": `
			others hold a 1h; q locks shared on b; p locks within q until 1h shared all of a b: invalid in 0s`,
		"is not for MinHold": `
			p locks minhold 1m all of a: invalid; count acquire 0`,
		"of nothing is nothing": `p locks all of; p unlocks`,
	})
}

func TestLockAny(t *testing.T) {
	fifteen := strings.Repeat(" a", 14) + " b" // that are all waited for
	play(t, map[string]string{
		"does not wait while one is free, in the caller's order": `
			others hold a 1h; p locks any of a c b: ok in 0s; p has c; b is free`,
		"takes the first that becomes free, and its lease outlives the other waits": `
			others hold a 1h; others hold b 1s; p locks any of a b a: ok in 1s-2s; p has b; others unlock a
			1m; a is free; p holds`,
		"keeps exactly one of those that become free together": `
			service queue; others hold a 1s; others hold b 1s; others hold c 1s
			p locks any of a b c: ok in 1s; count Held 1`,
		"waits for nobody else, and keeps none that comes late": `
			service queue deaf; others hold b 1s; acquire a: forever then 1m; p locks any of a b: ok in 1s
			p has b; 2m; count Held 1`,
		"waits for all that are held": `
			others hold a 1h; others hold b 1h; p locks until 1m any of a b: held deadline in 1m`,
		"sits an outage out": `
			acquire: down; p locks any of a b: waits; 5s; acquire: ok; p: ok in 5s-7s; count Held 1`,
		"for one TTL": `
			down; p locks any of a b: unavailable in 9s-10s
			p locks ttl 1s any of b a: unavailable in 1s-2s`,
		"of one, while the other is held": `
			others hold a 1h; others hold b 1h; acquire a: down
			p locks until 1m any of a b: unavailable deadline? in 9s-1m
			q locks until 1m any of b a: unavailable deadline? in 9s-1m`,
		"bounds the whole call with MaxWait": `
			others hold a 1h; others hold b 1h; p locks maxwait 1m any of a b: held in 1m
			p locks maxwait 0s any of a b: held in 0s; others hold c 1h
			p locks maxwait 5s any of a b a b a b a b a b a b a b a b a b c: held in 5s; count Waiting 0; others unlock c; c is free`,
		"and never takes an outage for a lock that is held": `
			others hold a 1h; others hold b 1h; acquire a: down
			p locks maxwait 3s any of a b: unavailable in 3s; p locks maxwait 3s any of b a: unavailable in 3s
			p locks maxwait 1m any of b a: unavailable in 1m; p locks maxwait 0s any of b a: unavailable in 0s`,
		"nor of those that it asks for in turn, whichever it has asked for last, or not yet": `
			others hold a 1h; others hold b 1h; acquire c: down; acquire d: forever
			p locks maxwait 200ms any of` + fifteen + ` c c: unavailable in 200ms
			p locks maxwait 2s any of` + fifteen + ` c d: unavailable in 2s
			p locks maxwait 2s any of` + fifteen + ` d c: unavailable in 2s
			p locks until 2s any of` + fifteen + ` c d: unavailable deadline in 2s
			p locks until 2s any of` + fifteen + ` d c: unavailable deadline in 2s
			p locks maxwait 2s any of` + fifteen + ` d d: held in 2s
			acquire c: forever then forever then 2s down
			p locks maxwait 1s any of` + fifteen + ` c c: unavailable in 2s-3s
			acquire c: forever then forever then hangs
			p locks until 1s any of` + fifteen + ` c c: held deadline in 1s`,
		"of an outage of all, for one TTL": `down; p locks maxwait 1m any of b a: unavailable in 9s-11s`,
		"one is refused": `
			others hold a 1h; acquire b: refused; p locks any of a b: refused "no permission" in 0s`,
		"one is refused during the wait": `
			others hold a 1h; others hold b 1h; acquire b: ok then refused
			p locks any of a b: refused in 0s-1s`,
		"cannot work without a name, with an empty one, or for MinHold": `
			p locks any of: invalid; p locks minhold 1m any of a: invalid; p locks maxwait -1ns any of a: invalid
			p locks until 0s any of a b: deadline; count acquire 0`,
	})
}

func names(ls locker.Leases) (all []string) {
	for _, l := range ls {
		all = append(all, l.Name())
	}
	return all
}
