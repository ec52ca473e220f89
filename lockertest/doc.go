// Package lockertest helps to test programs that use locks: what a program does when it gets no lock,
// loses one, or cannot reach the lock service.
//
// A [Service] is a lock service in memory that can fail, lose locks and let them expire:
//
//	service := lockertest.NewService()
//	client, err := locker.New(service, nil)
//	…
//	service.Fail(locker.ErrUnavailable) // an outage
//	service.Lose("invoice/1234")        // its holder has lost the lock
//
// [NewLease] makes a lease for code that takes one, and a function with which a test makes that lease
// lost.
//
// The examples can be copied.
package lockertest
