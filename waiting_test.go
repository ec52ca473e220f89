package locker_test

import "testing"

func TestWaiting(t *testing.T) {
	play(t, map[string]string{
		"no longer than the holder's TTL lasts": `others hold job 3s; a locks: ok in 3s-3.2s`,
		"also if the wake-up was lost":          `service notifies; others hold job 3s; a locks: ok in 3s-3.2s`,
		"also while Notify hangs (R14)": `
			service notifies; notify: hangs; others hold job 3s; a locks: ok in 3s-3.2s`,
		"a wake-up ends it, and nobody listens any more": `
			service notifies; others hold job 1h; a locks: waits; count listeners 1
			1s; others unlock job; a: ok in 1s; count listeners 0`,
		// A release between the refusal and the subscription is told to nobody.
		"it asks again when it has subscribed": `
			service notifies deaf; notify: 1ms; others hold job 1h; a locks: waits; 500us; others unlock job
			a: ok in 1ms`,
		"one asks for all, in their order": `
			service notifies; others hold job 1h; a locks: waits; b locks: waits; c locks: waits; 1m
			count acquire 3-20 listeners 1 Waiting 3; others unlock job; a: ok; b: waits; c: waits
			a unlocks; b: ok; c: waits; b unlocks; c: ok; c unlocks; count release 3`,
		"a note of the service says how long a holder stays, for ever": `
			acquire: forever; a locks until 1m: held deadline; count acquire 10-600`,
		"who gives up at the moment of its turn leaves the place to the next": `
			a locks; b locks: waits; c locks: waits; release: 1s; a unlocks: waits; b leaves
			b: canceled held?; 1s; c: ok`,
		"in a queue of the service, the next asks while the release is under way": `
			service queue deaf; a locks; b locks: waits; release: 1s then ok; a unlocks: waits
			count acquire 2; b: ok in 1s; count acquire 2; a: ok`,
		"without one, it waits for the answer": `
			service deaf; a locks; b locks: waits; release: 1s then ok; a unlocks: waits
			count acquire 1; b: ok in 1s; count acquire 2; a: ok`,
	})
}

func TestWhatIsToldOfAWait(t *testing.T) {
	play(t, map[string]string{
		"another has it": `
			others hold job 1h; a tries: held in 0s; a locks until 1s: held deadline in 1s
			b locks: waits; 1s; b leaves; b: held canceled in 1s`,
		"nothing is asked with a context that is over": `a locks until 0s: deadline; count acquire 0`,
		"in line behind a holder of this client": `
			a locks; b tries: held; b locks until 1s: held deadline in 1s; count acquire 1`,
		"behind a call that has no answer yet (R17)": `
			acquire: hangs; a locks until 1s: waits; b locks until 1s: waits
			a: unavailable deadline in 1s; b: deadline unavailable? in 1s`,
		// Of 300 callers whose deadlines were near each other, half were told nothing, and some of an outage.
		"behind one that was told, and has just left": `
			acquire: forever then hangs; a locks until 100ms: waits; b locks until 110ms: waits
			c locks until 105ms: waits; a: held deadline; c: held deadline; b: held deadline`,
		"when the answer comes with the deadline": `
			acquire: 100ms forever then hangs; a locks until 100ms: waits; b locks until 110ms: waits
			a: held deadline; b: held deadline`,
		"of a service that told it, and does not return": `
			service queue deaf; acquire: down then queued 2s; a locks until 1s: held deadline in 1s-1.1s; 2s`,
		"behind one that the queue of the service has told": `
			service queue; acquire: queued hangs; a locks: waits; b locks until 1s: held deadline in 1s
			a leaves`,
		"and that it has not": `
			service queue; acquire: hangs; a locks: waits; b locks until 1s: deadline in 1s; a leaves`,
		"what one was told leaves with it": `
			service queue; acquire: queued hangs then hangs; a locks until 1s: waits; b locks until 3s: waits
			c locks until 2s: waits; a: held deadline; c: deadline; b: unavailable deadline`,
		"an answer that came before the deadline did": `
			acquire: hangs refused; a locks until 1s: refused deadline in 1s`,
		"a service that refuses, at once": `
			acquire: refused; a locks: refused "no permission" in 0s; a tries: refused`,
	})
}

// In an outage, four of five that came together were told that the lock is held.
func TestATryWaitsForTheAnswerToOneBeforeIt(t *testing.T) {
	play(t, map[string]string{
		"held": `
			acquire: 1s forever; a locks until 3s: waits; b tries: waits; c tries: waits; count acquire 1
			b: held in 1s; c: held in 1s; d tries: held in 0s`,
		"as the queue of the service says": `
			service queue; acquire: 1s queued hangs; a locks until 3s: waits; b tries: waits; b: held in 1s`,
		"unavailable": `
			acquire: 1s down; a tries: waits; b tries: waits; c tries shared: waits; count acquire 1
			a: unavailable in 1s; b: unavailable in 1s; c: unavailable in 1s`,
		"also to one that goes on": `
			acquire: 1s down; a locks until 2s: waits; b tries: waits; b: unavailable in 1s
			c tries: unavailable in 0s`,
		"granted": `acquire: 1s; a tries: waits; b tries: waits; a: ok in 1s; b: held in 1s; count acquire 1`,
		"granted to be shared": `
			acquire: 1s; a tries shared: waits; b tries: waits; c tries shared: waits; b: held in 1s; c: ok in 2s
			count acquire 2`,
		"and asks itself after one that says nothing of it": `
			acquire: 1s refused then ok; a tries: waits; b tries: waits; a: refused in 1s; b: ok in 1s`,
		"or of sharers": `
			others hold job 1h shared; acquire: 1s; a tries: waits; b tries shared: waits; a: held in 1s; b: ok in 2s`,
		"or if that one leaves": `
			acquire: hangs then ok; a locks: waits; b tries: waits; 1s; a leaves; a: canceled unavailable; b: ok in 1s`,
		"or the one in between does": `
			acquire: hangs then hangs then ok; a locks until 1s: waits; c locks until 2s: waits; b tries: waits
			b: ok in 2s; c: deadline unavailable`,
		"no longer than its context": `
			acquire: hangs; a locks: waits; b tries until 1s: deadline in 1s; a leaves`,
		"nor than its client": `
			acquire: hangs; a locks: waits; b tries: waits; client closes; a: closed; b: closed`,
	})
}

func TestAnOutage(t *testing.T) {
	play(t, map[string]string{
		"that is over in time fails nobody": `
			acquire: down; a locks: waits; 4.5s; acquire: ok; a: ok in 4.5s-6.5s`,
		"is sat out for one TTL": `
			acquire: down; a locks: unavailable "gave up after 9s and " "connection refused" in 9s
			count acquire 10-30`,
		"or for the call's TTL": `acquire: down; a locks ttl 1s: unavailable "gave up after 1s" in 1s`,
		"or for OutageTimeout": `
			service outage=1s; acquire: down; a locks: unavailable in 1s; b locks ttl 1m: unavailable in 1s`,
		"or not at all":             `service outage=-1s; acquire: down; a locks: unavailable "connection refused" in 0s`,
		"or until its context ends": `acquire: down; a locks until 1s: unavailable deadline in 1s`,
		"but not by TryLock":        `acquire: down; a tries: unavailable in 0s`,
		"also after others have held": `
			others hold job 10s; a locks: waits; 9s; down; a: unavailable in 18s-20s`,
		"is told to those behind": `
			others hold job 1m; a locks: waits; 10s; acquire: down; 2s; b tries: unavailable; 3s
			acquire: ok; a: ok in 1m-62s`,
		"ends the wait of each in line in its time, and of none before": `
			acquire: down; a locks ttl 45s: waits; b locks ttl 1s: unavailable in 1s-3s
			c locks ttl 27s: waits; c: unavailable in 27s-29s; a: unavailable in 45s; count Waiting 0`,
		"does not send a line away": `
			a locks; b locks: waits; c locks: waits; d locks: waits; down; a unlocks: unavailable; 1s; up
			b: ok; b unlocks; c: ok; c unlocks; d: ok`,
		"and is sat out together, and not one TTL each": `
			a locks; b locks: waits; c locks: waits; d locks: waits; down; a unlocks: unavailable
			d: unavailable in 9s-11s; c: unavailable in 9s-11s; b: unavailable in 9s-11s`,
		"what is said of a queue too late is not heard": `
			acquire: later down then 1s down; a locks: waits; 1s; b tries: unavailable; a leaves`,
	})
}

func TestWhatIsLeftBehind(t *testing.T) {
	play(t, map[string]string{
		// etcd's Mutex stayed for 20 s after a cancel.
		"a call returns when its context ends, whatever the service does, and what came later is taken back (R8)": `
			service deaf; acquire: 3s; a locks until 1s: unavailable deadline in 1s-1.1s; 3s; job is free
			count TakenBack 1`,
		"a request whose outcome is unknown may arrive late (R7)": `
			acquire: late; a tries: unavailable; 1s; count release 1-20; 3s; job is free; 9s
			count Pending 0 TakenBack 1`,
		"until it cannot any more: its TTL is over": `
			acquire: lost; release: down; a tries: unavailable; 8s; count Pending 1; 10s
			count Pending 0 TakenBack 1`,
		"a lock of which the reply was lost": `
			acquire: ok lost; a tries: unavailable; 1s; job is free; count TakenBack 1`,
		"what a session would keep, for as long as it takes": `
			service session; acquire: ok lost; release: down; a tries: unavailable; 15m; count Pending 1; up; 2s
			count Pending 0 TakenBack 1`,
	})
}
