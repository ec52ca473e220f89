package locker_test

import (
	"testing"

	"github.com/golockers/locker"
)

func TestLockAll(t *testing.T) {
	play(t, map[string]string{
		"holds each name once, in one order": `
			p locks all of b a b; p has a b; p unlocks; a is free; b is free`,
		"holds none if one cannot be had": `
			others hold c 1h; release: 10ms
			p locks until 1s all of d c b a: held deadline in 1.01s-1.1s; a is free; b is free; d is free`,
		"tells of a loss during its wait": `
			others hold b 1h; renew: gone; p locks all of a b: lost in 2s-3s; a is free`,
		"returns with its context, whatever a release does": `
			acquire: ok then hangs; release: hangs
			p locks until 1s all of a b: unavailable deadline in 1s-1.1s; up; 5s`,
		"is not for MinHold": `
			p locks minhold 1m all of a: invalid; count acquire 0`,
		"of nothing is nothing": `p locks all of; p unlocks`,
	})
}

func TestLockAny(t *testing.T) {
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
		"for its patience": `
			down; p locks any of a b: unavailable in 9s-10s
			p locks patience 1s any of b a: unavailable in 1s-2s`,
		"of one, while the other is held": `
			others hold a 1h; others hold b 1h; acquire a: down
			p locks until 1m any of a b: unavailable deadline? in 9s-1m
			q locks until 1m any of b a: unavailable deadline? in 9s-1m`,
		"one is refused": `
			others hold a 1h; acquire b: refused; p locks any of a b: refused "no permission" in 0s`,
		"one is refused during the wait": `
			others hold a 1h; others hold b 1h; acquire b: ok then refused
			p locks any of a b: refused in 0s-1s`,
		"cannot work without a name, with an empty one, or for MinHold": `
			p locks any of: invalid; p locks minhold 1m any of a: invalid
			p locks until 0s any of a b: deadline; count acquire 0`,
	})
}

func names(ls locker.Leases) (all []string) {
	for _, l := range ls {
		all = append(all, l.Name())
	}
	return all
}
