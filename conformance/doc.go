// Package conformance is the suite of tests that every [locker.Backend] passes:
// those of this module and those of third parties. A backend that passes it may
// be used wherever a [locker.Locker] is asked for, and does what its
// [locker.Guarantees] say, as far as tests can tell.
//
// # Using it
//
// A test of the backend's package says how to reach the service, and runs the
// suite:
//
//	func TestConformance(t *testing.T) {
//		server := startServer(t)
//		conformance.Run(t, conformance.Harness{
//			New: func(t conformance.T) locker.Backend { return connect(t, server) },
//			// … and the hooks that the claims need
//		})
//	}
//
// The example of this package is a whole backend with its harness, written in
// an afternoon, and the example called Network is one across a network. It
// grows from there: each claim that is added to Guarantees makes the suite ask
// for a proof, and for the hook that the proof needs.
// One check at a time is run by
//
//	go test -run 'TestConformance/dead-holder' .
//
// and programs that are not tests run checks with [Prove].
//
// # Claims
//
// The suite reads the backend's Guarantees, and its optional abilities
// ([locker.Inspector], [locker.Notifier]). What is claimed must pass; a claim
// never skips a check. What is not claimed must not be there, or is refused
// with [errors.ErrUnsupported]: no tokens where Fencing is none, no TTL
// outside of the bounds, no Inspect without an Inspector. A claim whose proof
// needs a hook that the [Harness] does not have is a failure, too, unless
// Harness.Unproven gives the reason, which then stands in the test's output.
//
// # What hooks are needed
//
//	claim                             hook
//	Scope wider than one process      Delete: an operator, or an eviction
//	Scope is the network              Cut: a connection that can be broken
//	DeadHolder at once                Victim: a program that is killed
//	DeadHolder after the TTL          Victim, or Cut, which stands in for it
//	Fencing unless data is set back   Restart
//	SurvivesRestart                   Restart
//	SurvivesFailover                  Failover
//	ServerCrashes                     Crash
//	SurvivesClockJump                 JumpClock, where servers have a part in exclusion
//	no client's clock decides         OffClock; without it, told as unproven
//	SurvivesPause                     none: package compare tries it
//
// Cut matters most. Between the client that it returns and the service stands
// something that can hold, drop and reset what passes, in both directions: a
// [Proxy], or a dialer whose connections do so. What is held must arrive
// later even if its sender has hung up: that is what makes the ghost of a
// request, which its sender has given up and which is carried out all the same.
//
//	Cut: func(t conformance.T) (locker.Backend, conformance.Fault) {
//		p := conformance.StartProxy(t, server.Addr)
//		return connect(t, p.Addr()), p
//	},
//
// # What authors ask
//
//   - DeadHolderSlack is how much later than the end of the TTL a dead holder's
//     lock can be free: the tick in which the service looks for what has expired,
//     and, where a session keeps the lock, what the session lasts longer than the
//     TTL that was asked for.
//   - Release of a row that is the hold's own and has expired, but which nobody
//     has taken or cleared, may return nil or ErrLost. It must remove the row.
//     Release of what is another's now returns ErrLost and removes nothing.
//   - A Grant whose request was certainly never sent (no connection, a context
//     that was over before) needs no Hold beside the error. In any doubt set it.
//   - No clock of a client may decide when a lock is over. A client that writes
//     "expires at 12:00:30" by its own clock gives the lock to another whose clock
//     is ahead, or keeps a dead holder's for as long as it is ahead itself. Send
//     durations, and compare inside the service, at the moment of the statement:
//     in SQL by clock_timestamp(), since now() is when the transaction began.
//   - Tokens come from the service, in the same step as the grant: a client's
//     counter or clock does not rise over those of others.
//   - A renewal changes what is there and never inserts: a row that is gone may
//     have been another's meanwhile (R12).
//   - A request may arrive after its take-back. Where a TTL ends what it makes,
//     that is all right. Where a session would keep it, TakeBack has to make the
//     request void, or retire the session.
//
// # Time
//
// Checks wait for conditions and compare recorded moments ("told at" before
// "next holder in at"), with bounds that are generous to a busy machine. The
// unit is Harness.TTL. With a TTL of one second, all checks together take some
// 20 seconds for a service without a network, and 60 for one with. A check that
// fails while the machine stalled for a quarter of a TTL or more proves nothing.
// It is run again with twice the TTL, and is "inconclusive" if the machine stalls
// in three tries.
//
// # What it cannot prove
//
// A suite sees what happens in a minute. It does not see rare interleavings
// inside a service, a disk that lies, a network that reorders, nor whether
// RestsOn is true. And no lock protects a holder that is stopped between its
// last look and its write (R20); only tokens that the resource checks do.
//
// That the suite can fail is proven by its own tests: for each check there is
// a backend that breaks just that promise, and that the check rejects.
package conformance
