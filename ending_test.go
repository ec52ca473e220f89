package locker_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestMinHold(t *testing.T) {
	play(t, map[string]string{
		"keeps the lock of one that unlocks, as long as that and no longer": `
			a locks minhold 5m; 1m; a holds; a unlocks: ok in 0s; a ended: unlocked; 239s; job is held
			count release 1 Released 1; 5s; job is free; count release 1 Pending 0`,
		"also where the TTL is longer": `
			a locks ttl 30m minhold 5m; a unlocks: ok; 299s; job is held; 5s; job is free`,
		"or the service would keep the lock with a session": `
			service session; a locks minhold 5m; a unlocks: ok; 299s; job is held; 5s; job is free`,
		"and of a client that is closed": `
			a locks minhold 5m; 1m; client closes: ok in 0s; a ended: closed; 239s; job is held; 5s; job is free
			count release 1 LeftBehind 0`,
		"and of both": `
			service owned; a locks minhold 5m; a unlocks; client closes: ok in 0s; count release 1 close 1; 299s
			job is held; 5s; job is free`,
		"and of one that is lost": `
			a locks minhold 1m norenew; a ends: lost in 8.908s; 50s; job is held; 3s; job is free`,
		"which then unlocks, or whose client is closed": `
			a locks ttl 30m maxhold 10m minhold 10m; a ends: lost in 9m-10m; a unlocks: lost; 5s; job is held
			7s; job is free
			b locks ttl 30m maxhold 10m minhold 10m; b ends: lost in 9m-10m; client closes: ok; 5s; job is held
			7s; job is free; count Pending 0`,
		"with a release that is repeated until it is confirmed, and asks for less each time": `
			release: down; a locks ttl 30m minhold 5m; a unlocks: unavailable "tried again"; 2m; job is held
			count Pending 1; up; 25s; count Pending 0 TakenBack 1; 150s; job is held; 7s; job is free`,
		"also if its reply was lost, and what comes late does not make it longer": `
			release: ok lost then ok; a locks ttl 30m minhold 5m; a unlocks: unavailable; 299s; job is held
			5s; job is free; count release 2 Pending 0`,
		"and is undone when that is over": `
			release: down; a locks minhold 5m; a unlocks: unavailable; 299s; count Pending 1; 6s; job is free
			count Pending 0`,
		"but nobody asks after Close: it ends with its TTL then, or with MinHold if that is later": `
			service owned; release: down; a locks ttl 30m minhold 5m; a unlocks: unavailable
			client closes: unavailable; count LeftBehind 1; 20m; job is held`,
		"also where only something else keeps it that a release does not find": `
			release: gone then ok; a locks ttl 10s minhold 5m norenew; a ends: lost in 9.8s-9.9s; a unlocks: lost
			4m; job is held; count release 1 Pending 1; 54s; job is free; count Pending 0`,
		"and Close does not end that": `
			service owned; release: gone then ok; a locks ttl 10s minhold 5m norenew; a ends: lost in 9.8s-9.9s
			client closes: ok in 0s; count release 1; 4m; job is held`,
		"and nothing is left to do where it was gone before": `
			a locks minhold 5m; job is deleted; a unlocks: lost; count Pending 0; job is free`,
		// Nobody has run the hourly job, and for an hour nobody could.
		"does not keep what nobody was given, however long it takes": `
			acquire: ok lost; release: down; a tries minhold 50m: unavailable; 45s; job is held; up; 2s
			job is free
			count TakenBack 1 LeftBehind 0`,
		"nor what was granted too late for anybody": `
			service deaf; acquire: ok 9s then ok; a tries minhold 50m: unavailable; 1s; job is free`,
		"which is looked for as long as it may come, less and less often": `
			acquire: lost; a tries minhold 50m: unavailable; 1h; count Pending 0 LeftBehind 0 release 5-99`,
		"does not keep what is given back": `
			a locks minhold 5m; 1m; a returns: ok in 0s; job is free; a ended: unlocked; a unlocks; a returns
			count release 1 Released 1`,
		"nor what is given back after a loss, which was to be kept": `
			a locks minhold 5m norenew; a ends: lost in 8.908s; 10s; job is held; a returns: lost; job is free`,
		"nor if the release fails: it is tried again until it succeeds": `
			release: down then hangs then down; a locks minhold 5m; a returns: unavailable "tried again"
			20s; job is held; a returns: unavailable; count Pending 1; up; 2s; job is free; count Pending 0 TakenBack 1`,
		"nor if the holder does not wait": `
			release: 1s; a locks minhold 5m; a returns until 0s: deadline in 0s; a unlocks: ok in 1s; job is free`,
		"nor while the client is closed": `
			service owned; release: 1s; a locks minhold 5m; a returns endless: waits; client closes: ok in 1s; a: ok
			job is free; count release 1`,
		"which tries once more": `
			service owned; release: down then ok; a locks minhold 5m; a returns: unavailable
			client closes; job is free`,
		"nor from the next in line, which it is passed to": `
			service passes; a locks minhold 5m; b locks: waits; a returns; b: ok in 0s; count pass 1`,
		"nor what sharers give back": `
			r locks shared minhold 5m; s locks shared minhold 5m; w locks: waits; r returns; w: waits; job is held
			s returns; w: ok in 0s-1s`,
		"but an Unlock that came first decides": `
			a locks minhold 5m; a unlocks; a returns; 1m; job is held; count release 1`,
		"and so does Close": `
			a locks minhold 5m; client closes; a returns: closed; 1m; job is held; count release 1`,
		"is not passed on": `
			service passes; a locks minhold 4.5s; b locks: waits; a unlocks; b: waits; 5s; b: ok
			count pass 0`,
	})
}

func TestClose(t *testing.T) {
	play(t, map[string]string{
		"ends all waits, releases what is held, and leaves the service that its user made": `
			others hold x 1h; a locks; b locks: waits; c locks on x: waits; d locks endless: waits
			e locks endless on x: waits
			client closes: ok in 0s; b: closed; c: closed; d: closed; e: closed; a ended: closed
			a unlocks: closed
			job is free; client closes; f locks: closed; f tries: closed; count Held 0 close 0`,
		"waits for an unlock under way": `
			service owned; a locks; release: 1s; a unlocks endless: waits; client closes: ok in 1s; a: ok
			job is free`,
		"waits for what an acquire under way brings": `
			service owned; acquire: 1s; a locks endless: waits; client closes: ok in 1s; a: closed
			job is free`,
		"waits for take-backs": `
			service owned deaf; acquire: ok hangs 1s lost; a locks: waits; 1s; a leaves
			client closes: ok in 1s; a: canceled
			job is free`,
		"does not wait for a service that hangs": `a locks; release: 1m; client closes: unavailable in 2s-5s`,
		"nor for its connections: together they are bounded, and not each of them": `
			service owned deaf; a locks; b locks on b; release: 1h; close: 1h
			client closes: unavailable "not every lock could be released" "still closing its connections" in 4s`,
		"says so if a lock is left behind, at once": `
			a locks; release: down; client closes: unavailable in 0s; job is held; count LeftBehind 1`,
		"nor for a renewal that does": `
			renew: hangs; a locks; 4s; count renew 1; client closes: ok in 0s; job is free
			count RenewFailed 0`,
		"nor for Notify": `
			service notifies deaf; notify: 1s; others hold job 1h; a locks: waits
			client closes: ok in 0s-2s; a: closed
			2s; count listeners 0`,
		"ends a call whose grant came too late": `
			acquire: ok 18s then ok; a locks: waits; 10s; others hold job 1h; 17s; count Waiting 1
			client closes: ok in 0s
			a: closed`,
		"takes back beside a request that hangs": `
			service deaf; acquire slow: 10s down; release: 1ms; a locks ttl 1h maxhold 1s; 2s
			b locks endless on slow: waits
			client closes: unavailable; job is free`,
		"removes the note of a writer": `
			acquire: note; leave: 1ms; w locks: waits; 8ms; client closes: ok in 1ms; w: closed; count leave 1`,
		"while a lock is passed on, before": `
			service passes owned; pass: 1s; a locks; b locks: waits; c locks: waits; a unlocks endless: waits
			client closes: ok in 1s; a: ok; b: closed; c: closed; job is free`,
		"or after": `
			service passes owned; pass: ok 1s; a locks; b locks: waits; c locks: waits; a unlocks endless: waits
			client closes: ok in 1s; a: ok; b: closed; c: closed; job is free`,
	})
}

func TestPassingOn(t *testing.T) {
	play(t, map[string]string{
		"the next in line gets the lock with the release, with settings of its own": `
			service passes; a locks; b locks ttl 1m: waits; a unlocks; b: ok; b until 59.398s
			a ended: unlocked; a unlocks
			count acquire 1 pass 1 Attempts 2 Acquired 2 Released 1 Held 1; 25s; b holds; b unlocks
			job is free`,
		"a lease counts from the request (R1)": `
			service passes deaf; pass: ok 18s then ok; a locks; b locks: waits; a unlocks: ok in 18s; b: ok
			b holds; count Failed 1`,
		"a visit ends after a while, unless nobody else waits": `
			service passes; a locks; b locks: waits; c locks: waits; d locks: waits; 1ms; a unlocks; b: ok
			1ms; b unlocks
			c: ok; 1ms; c unlocks; d: ok; count pass 3 yield 2 acquire 1`,
		"and with those who wait comes another": `
			service passes contended; a locks; b locks: waits; c locks: waits; d locks: waits; 1ms
			a unlocks; b: ok; 1ms
			b unlocks; c: ok; 1ms; c unlocks; d: ok; count pass 3 yield 1 acquire 2`,
		"who leaves meanwhile leaves at once, and nothing behind (R8)": `
			service passes; pass: ok 100ms; a locks; b locks: waits; c locks: waits
			a unlocks endless: waits; b leaves
			b: held canceled in 0s; a: ok; c: ok; count TakenBack 1`,
		"a request whose reply is lost leaves nothing of either": `
			service passes; pass: ok lost; a locks; b locks: waits; a unlocks: unavailable "tried again"
			b: ok in 0s-1s
			b holds; count TakenBack 1-2; b unlocks; job is free`,
		"or that is lost itself": `
			service passes; pass: lost; a locks; b locks: waits; a unlocks: unavailable; b: ok in 0s-1s
			b unlocks; job is free`,
		"a hold that is gone is not passed on": `
			service passes; a locks; job is deleted; others hold job 1s; b locks: waits; a unlocks: lost
			b: ok in 1s-2s`,
		"nor one that is over": `
			service passes; a locks norenew; b locks: waits; 18s; a unlocks: lost; count pass 0; b: ok`,
		"nor that of a sharer, nor to one": `
			service passes; r locks shared; w locks: waits; r unlocks; w: ok in 0s-1s; s locks shared: waits
			w unlocks; s: ok
			count pass 0`,
	})
}

// What ended the caller's context may have been another lock: an error of this one says
// nothing of that.
func TestTheCauseOfAContextIsNoStateOfThisLock(t *testing.T) {
	for cause, own := range map[string]string{"held": "", "lost": "", "unavailable": "", "closed": "", "mine": "mine"} {
		is := fmt.Sprintf("canceled %s %q", own, sentinels[cause])
		play(t, map[string]string{cause: strings.NewReplacer("CAUSE", cause, "IS", is).Replace(`
			service prompt; acquire: ok cause then ok; a locks: waits; a leaves for CAUSE; a: IS; 1s; job is free
			b locks; renew: ok cause then ok; b renews: waits; b leaves for CAUSE; b: IS; b holds
			release: cause then 1ms; b unlocks: waits; b leaves for CAUSE; b: IS; 30s; job is free
			others hold job 1h; c locks: waits; c leaves for CAUSE; c: held IS`)})
	}
}
