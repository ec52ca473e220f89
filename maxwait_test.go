package locker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// Where a call is when its MaxWait is over, and what it comes to:
//
//	behind a holder, or a call that was refused           ends at once: held
//	behind a call that has met an outage                  ends at once: unavailable
//	behind a call that has no answer yet                  the answer to that one, or asks itself: as TryLock
//	where it was refused beside the first, and stands     ends at once, with that answer
//	the lock is being passed to it                        gets it, or asks itself
//	in its first attempt                                  the answer to it
//	in a queue of the service, and was told of it         ends at once: held
//	in that queue, and was not told                       ends when it is told, or has its answer
//	in a later attempt                                    ends at once, with the last answer; what is left is taken back
//	in a pause                                            ends at once, with the last answer
//	ctx or Close ends it before, or after                 as without MaxWait
func TestMaxWait(t *testing.T) {
	play(t, map[string]string{
		"bounds the wait behind a holder": `
			a locks; b locks maxwait 1s: held "MaxWait is reached: the lock is held by another" in 1s
			c locks maxwait 3s: waits; 2s; a unlocks; c: ok in 2s; 5s; c holds`,
		"behind one that was refused": `
			acquire: forever then hangs; a locks until 9s: waits; b locks maxwait 1s: held in 1s; a: held deadline`,
		"behind one that waits in the queue of the service": `
			service queue; acquire: queued hangs; a locks until 9s: waits; b locks maxwait 1s: held in 1s`,
		"behind one that meets an outage": `
			acquire: down; a locks until 9s: waits; b locks maxwait 1s: unavailable in 1s`,
		"behind one without an answer, whose answer it takes: held": `
			acquire: 3s forever; a locks until 9s: waits; b locks maxwait 1s: held in 3s; count acquire 1`,
		"an outage": `
			acquire: 3s down then hangs; a locks until 9s: waits; b locks maxwait 1s: unavailable in 3s; count acquire 1`,
		"a grant": `acquire: 3s; a locks: waits; b locks maxwait 1s: held in 3s; a: ok; count acquire 1`,
		"or it asks when that one has left": `
			acquire: hangs then 2s; a locks until 3s: waits; b locks maxwait 1s: ok in 5s; a: unavailable deadline`,
		"or has said nothing of the lock": `
			acquire: 3s refused then ok; a locks: waits; b locks maxwait 1s: ok in 3s; a: refused`,
		"also of several that stand together": `
			acquire: hangs then 2s; a locks until 3s: waits; b locks maxwait 1s: waits; c locks maxwait 2s: waits
			d locks maxwait 10s: waits; b: ok in 5s; c: held in 5s; d: waits; b unlocks; d: ok in 7s`,
		"and none that stands behind one is kept out by it": `
			others hold job 1h shared; acquire: hangs then ok; a locks until 3s: waits; b locks shared maxwait 1s: waits
			c locks shared until 9s: waits; b: ok in 3s; c: ok in 3s`,
		"where a sharer was refused beside the first": `
			r locks shared; acquire: hangs then forever; a locks shared until 9s: waits
			b locks shared maxwait 1s: held in 1s; count acquire 3`,
		"with its own answer, where another sharer has got the lock since": `
			r locks shared; acquire: hangs then 1s forever then 1s forever then 1500ms then 20s
			a locks shared until 9s: waits; b locks shared maxwait 2s: waits; c locks shared until 2s: waits
			` + strings.Repeat("t tries shared: waits; ", 64) + `
			b: held in 2s; c: held deadline in 2s; 30s`,
		"the first attempt is not cut short: granted": `acquire: 3s; a locks maxwait 1s: ok in 3s; 5s; a holds`,
		"refused":                    `acquire: 3s forever; a locks maxwait 1s: held in 3s; count acquire 1`,
		"without an answer":          `acquire: 3s lost; a locks maxwait 1s: unavailable in 3s; count acquire 1`,
		"with a wrong password":      `acquire: 3s refused; a locks maxwait 1s: refused in 3s`,
		"nor if it is beside others": `r locks shared; acquire: 3s; a locks shared maxwait 1s: ok in 3s`,
		"in a queue, it ends when it is known that another has the lock": `
			service queue; others hold job 1h; a locks maxwait 1s: held in 1s`,
		"which is known late": `
			service queue; acquire: 3s queued hangs; a locks maxwait 1s: held in 3s; count acquire 1`,
		"or never, since it is granted": `service queue; acquire: 3s; a locks maxwait 1s: ok in 3s`,
		"a queue that does not return leaves nothing behind": `
			service queue deaf; acquire: queued 5s; a locks maxwait 1s: held in 1s-1.1s; 5s; job is free`,
		"a later attempt is cut short: held": `
			acquire: forever then hangs; a locks maxwait 1s: held in 1s; count acquire 2`,
		"after an outage": `
			acquire: down then hangs; a locks maxwait 1s: unavailable "connection refused" in 1s; count acquire 2`,
		"of sharers": `
			service queue; r locks shared; acquire: queues down; a locks shared until 9s: waits
			b locks shared maxwait 1s: unavailable in 1s; a leaves`,
		"what it is granted later is taken back": `
			service deaf; acquire: forever then 3s; a locks maxwait 1s: held in 1s-1.1s; 3s; job is free
			count TakenBack 1`,
		"also if that comes late, or without an answer": `
			acquire: forever then hangs ok cause; a locks maxwait 1s: held in 1s; 3s; job is free; count TakenBack 1`,
		"a pause ends": `others hold job 1h; a locks maxwait 777ms: held in 777ms; 5s; count Waiting 0`,
		"or a wait for a wake-up, and nobody listens any more": `
			service notifies; others hold job 1h; a locks maxwait 5s: held in 5s; count listeners 0`,
		"a pause of an outage": `
			down; a locks maxwait 1s: unavailable "MaxWait is reached: connection refused" in 1s`,
		"also where the outage timeout is longer": `service outage=1h; down; a locks maxwait 30m: unavailable in 30m`,
		"and shorter":                             `service outage=1s; down; a locks maxwait 30m: unavailable "gave up" in 1s`,
		"an outage during it":                     `others hold job 1h; a locks maxwait 5s: waits; 4s; down; a: unavailable in 5s`,
		"ctx ends first":                          `others hold job 1h; a locks maxwait 2s until 1s: held deadline in 1s`,
		"or its caller leaves":                    `others hold job 1h; a locks maxwait 2s: waits; a leaves; a: held canceled in 0s; 5s`,
		"ctx ends the first attempt":              `acquire: hangs; a locks maxwait 1s until 2s: unavailable deadline in 2s`,
		"and one that goes on as a TryLock":       `acquire: hangs; a locks until 9s: waits; b locks maxwait 1s until 2s: deadline in 2s`,
		"Close ends it":                           `others hold job 1h; a locks maxwait 9s: waits; client closes; a: closed in 0s`,
		"with a context that cannot end":          `others hold job 1h; a locks maxwait 9s endless: waits; client closes; a: closed in 0s`,
		"which it bounds":                         `others hold job 1h; a locks maxwait 1s endless: held in 1s`,
		"or ends the first attempt":               `acquire: hangs; a locks maxwait 1s: waits; 2s; a: waits; client closes; a: closed`,
		"or one that goes on as a TryLock":        `acquire: hangs; a locks: waits; b locks maxwait 1s: waits; 2s; client closes; a: closed; b: closed`,
		"granted in the moment when it is over":   `acquire: 1s; a locks maxwait 1s: ok in 1s`,
		"free in the moment when it is over":      `service queue; others hold job 1s; a locks maxwait 1s: held? ok? in 1s; a leaves; 1m`,
		"its turn comes in the moment when it is": `acquire: hangs then ok; a locks until 1s: waits; b locks maxwait 1s: ok in 1s; a: unavailable deadline`,
		"unlocked in the moment when it is over":  `a locks until 9s; b locks maxwait 1s: waits; acquire: ok; 1s; b: held`,
		"a leave of the note":                     `acquire: note; w locks maxwait 1s: held; 1ms; count leave 1`,
		"and of the place of the client, if it was the last that waits": `
			acquire: place; a locks until 500ms: waits; b locks maxwait 1s: waits; 999ms; count leave 0; 2ms
			a: held deadline; b: held; count leave 1`,
	})
}

func TestMaxWaitOfACallThatTheLockIsPassedTo(t *testing.T) {
	play(t, map[string]string{
		"gets it": `
			service passes; a locks; b locks maxwait 1s: waits; pass: 3s ok; a unlocks: waits; b: ok in 3s; a: ok
			count acquire 1 TakenBack 0`,
		"or asks itself": `
			service passes contended; a locks; b locks maxwait 1s: waits; 5ms; pass: 3s; a unlocks: waits
			b: ok in 3005ms; a: ok; count acquire 2 pass 1`,
		"and is told what it meets": `
			service passes; a locks; b locks maxwait 1s: waits; pass: 3s down; a unlocks: waits; b: held in 3s
			a: unavailable`,
		"of those behind it, as without": `
			service passes; a locks; b locks: waits; c locks maxwait 1s: held in 1s`,
	})
}

func TestMaxWaitOfZero(t *testing.T) {
	play(t, map[string]string{
		"is TryLock":       `others hold job 1h; a locks maxwait 0s: held "the lock is held" in 0s; count acquire 1; others unlock job; b locks maxwait 0s`,
		"within its own":   `a locks; a locks within a maxwait 0s: held invalid`,
		"almost":           `others hold job 1h; a locks maxwait 1ns: held in 0s-1ms; 1m`,
		"almost, and free": `acquire: 1s; a locks maxwait 1ns: ok in 1s`,
		"is not negative":  `a locks maxwait -1ns: invalid "a MaxWait of -1ns"; count acquire 0`,
		"nor of a TryLock": `a tries maxwait 1s: invalid; a tries maxwait 0s: invalid "leave MaxWait out"; count acquire 0`,
	})
}

// acquiring is a service that a function stands for.
type acquiring struct {
	*scripted
	acquire func(ctx context.Context, req driver.Request) (driver.Grant, error)
}

func (a acquiring) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return a.acquire(ctx, req)
}

// MaxWait ends a call whose backend stands on another Client, which asked again and again then.
func TestMaxWaitOfACallInWhoseContextAnotherClientWaits(t *testing.T) {
	for what, first := range map[string]*driver.Refusal{"for its first answer": nil, "after a refusal": {}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				inner := locktest.Client(t, acquiring{newScripted(), func(ctx context.Context, _ driver.Request) (driver.Grant, error) {
					switch asked++; {
					case asked > 2:
						return driver.Grant{}, errRefused
					case asked == 1 && first != nil:
						return driver.Grant{Refused: first}, nil
					}
					<-ctx.Done()
					return driver.Grant{}, ctx.Err()
				}}, nil)
				c := locktest.Client(t, acquiring{newScripted(), func(ctx context.Context, req driver.Request) (driver.Grant, error) {
					req.Queued()
					_, err := inner.Lock(ctx, req.Name)
					return driver.Grant{}, err
				}}, nil)
				_, err := c.Lock(t.Context(), "job", locker.MaxWait(time.Second))
				require.ErrorIs(t, err, locker.ErrHeld)
				require.NotErrorIs(t, err, locker.ErrRefused)
			})
		})
	}
}
