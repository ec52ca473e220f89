package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

// checkDeadHolder kills a program. Without one, histories cut off a client instead.
func checkDeadHolder(s *trial) {
	b, name := s.backend(), s.name("dead")
	ttl, life := s.long, time.Duration(0) // or the end of the TTL would look like the death
	if s.g.DeadHolder != locker.RecoveryAtOnce {
		grant := s.acquire(b, s.request(s.name("life"), s.ttl))
		s.release(grant.Hold)
		ttl, life = s.ttl, max(grant.Validity.TTL, s.ttl)
	}
	kill := s.h.Victim(s, name, ttl)
	other := s.clientOf(b)
	time.Sleep(s.ttl / 2)
	if _, err := s.tryLock(other, name); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("while the victim lived, TryLock of its name returned %v", err),
			"the harness's victim holds nothing")
	}
	kill()
	died := time.Now()
	s.unlock(s.freeWithin(life+s.g.DeadHolderSlack+s.soon, other, name,
		"a dead holder's lock is kept for longer than claimed"))
	s.Logf("the lock of a holder that died was free after %v", time.Since(died))
}
