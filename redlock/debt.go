package redlock

import (
	"time"

	"github.com/golockers/locker/internal/redisnode"
)

// debt is a release that is to be delivered to a node.
type debt struct {
	claim redisnode.Claim
	void  time.Duration
	until time.Time // the TTL has ended it by then
}

// What a node is owed is bounded: what is too much ends with its TTL.
const (
	maxDebts    = 10000
	debtPause   = 200 * time.Millisecond
	debtBatch   = 256
	settlePause = 5 * time.Millisecond
	settleTime  = 300 * time.Millisecond
)

// release sends a release, withdraws it when it takes too long, and keeps it
// for later where it did not arrive.
func (v *voter) release(d debt, answer func(redisnode.State, error)) {
	q := ask(v, opRelease, d.claim.Name, func(cb func(redisnode.State, error)) redisnode.Question {
		return v.member.Release(d.claim, d.void, cb)
	}, stateOutcome, func(st redisnode.State, err error) {
		if err != nil {
			v.owe(d)
		}
		answer(st, err)
	})
	_ = q // its time is bounded by the node's requestTimeout
}

// owe keeps a release that was not confirmed.
func (v *voter) owe(d debt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.debts) < maxDebts && time.Now().Before(d.until) && !v.b.isClosed() {
		v.debts = append(v.debts, d)
		v.arm()
	}
}

// arm has debts delivered after a while. v.mu is held.
func (v *voter) arm() {
	if v.timer == nil && len(v.debts) > 0 {
		v.timer = time.AfterFunc(debtPause, func() {
			v.mu.Lock()
			v.timer = nil
			v.mu.Unlock()
			v.deliver()
		})
	}
}

// deliver sends some of what the node is owed.
func (v *voter) deliver() {
	if v.b.isClosed() {
		return
	}
	v.send()
	v.mu.Lock()
	v.arm()
	v.mu.Unlock()
}

func (v *voter) send() {
	now := time.Now()
	v.mu.Lock()
	n := min(len(v.debts), debtBatch)
	due := v.debts[:n:n]
	v.debts = v.debts[n:]
	v.mu.Unlock()
	for _, d := range due {
		if now.Before(d.until) {
			v.release(d, func(redisnode.State, error) {})
		}
	}
}

// settleDebts is for Close: it sends what is owed once more, and waits a moment
// for all answers that are under way.
func (b *Backend) settleDebts() {
	for _, v := range b.voters {
		v.mu.Lock()
		if v.timer != nil {
			v.timer.Stop()
		}
		v.mu.Unlock()
		v.send()
	}
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline); time.Sleep(settlePause) {
		busy := 0
		for _, v := range b.voters {
			v.num.mu.Lock()
			busy += v.num.flying
			v.num.mu.Unlock()
		}
		if busy == 0 {
			return
		}
	}
}
