package lockertest

import (
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/memlock"
)

// Service is a lock service in memory. Its locks expire with their TTL unless they are renewed, as in a
// network service. It is a [driver.Backend] and a [driver.Operator]. A test passes it to locker.New,
// once for each program that it simulates. In a bubble of testing/synctest every timer is exact, and
// hours take no time.
type Service struct{ *locks }

type locks = memlock.Backend

var _ driver.Operator = (*Service)(nil)

// NewService returns a Service in which no lock is held.
func NewService() *Service { return &Service{memlock.New(true)} }

// Fail makes every call to the Service, including calls that wait, return err until Fail is called with
// nil. An err that matches locker.ErrUnavailable is an outage; any other is a refusal, such as a wrong
// password. Meanwhile locks are neither renewed nor released: their leases are lost when they expire.
func (s *Service) Fail(err error) { s.locks.Fail(err) }

// Lose takes the lock on name from its holder, or from all sharers, as an operator or an eviction
// would. The holder learns of it at once. name includes the Client's prefix. Lose returns false if
// nobody held name. It also works while the Service fails.
func (s *Service) Lose(name string) bool { return s.locks.Lose(name) }
