// Package conformance is the suite of tests that every [driver.Backend] has to pass, those of this
// module and those of third parties. A backend that passes may be used wherever a [locker.Locker] is
// needed, and keeps its [locker.Guarantees], as far as tests can tell.
//
// # Using it
//
// A test in the backend's package says how to reach the service, and runs the suite:
//
//	func TestConformance(t *testing.T) {
//		server := startServer(t)
//		conformance.Run(t, conformance.Harness{
//			New: func(t conformance.T) driver.Backend { return connect(t, server) },
//			// … and the hooks that the claims need
//		})
//	}
//
// The example of this package is a complete backend with its harness, and the example called Network is
// one across a network: copy them. Programs that are not tests use [Check].
//
// Every claim of the Guarantees must hold, and every optional ability ([driver.Operator],
// [driver.Notifier] and so on); a claim never skips a test. What is not claimed must be absent, or be
// refused with [errors.ErrUnsupported]. If the proof of a claim needs a hook that the [Harness] does not
// have, the suite fails, unless Harness.Unproven gives the reason, which is then told:
//
//	claim                             hook
//	Scope wider than one process      Delete: an operator, or an eviction
//	Scope is the network              Cut: a connection that can be broken
//	DeadHolder at once                Victim: a program that is killed
//	DeadHolder later than at once     Victim, or Cut, which stands in for it
//	Fencing unless data is set back   Restart
//	SurvivesRestart                   Restart
//	SurvivesFailover                  Failover
//	ServerCrashes                     Crash, and Hang where servers can be stopped
//	the same, of one client           CutSome, where clients ask a quorum of servers themselves
//	SurvivesClockJump                 JumpClock, where servers have a part in exclusion
//	no client's clock decides         OffClock, where it can be had
//	Close of what is the user's       Pair, where a backend is made of a driver's client
//	SurvivesPause                     none: package compare tries it
//
// Cut matters most. Between its client and the service there has to be a [Proxy], or a dialer, that can
// hold, drop and reset data in both directions. Held data must arrive later even if its sender has closed
// the connection: this makes a ghost, a request that its sender has given up and that is carried out
// nevertheless.
//
//	Cut: func(t conformance.T) (driver.Backend, conformance.Fault) {
//		addr, fault := conformance.Proxy(t, server.Addr)
//		return connect(t, addr), fault
//	},
//
// # How promises are judged
//
// The contract is said once, as rules that hold for whatever several clients do. A history is what comes
// of a script: clients acquire, wait, renew, release, undo, pass, raise tokens, inspect, list, break,
// listen and close, under contexts that end early or never, with names, labels and TTLs that hurt, while
// requests are held, lost or overtaken, replies are lost or late, connections are reset, all or those to some
// servers, owners ask again, locks are deleted, servers restart and clocks step. Half of the scripts are cells of
// the matrix of operation, fault and end, with a rival beside; the others are drawn. For each attempt the judge knows when its
// holder may act, until when the service has to keep it, and when something of it may be there. An answer
// that these times do not explain breaks a rule:
//
//	exclusion  a holder that holds alone is alone, until its lease and its MinHold are over
//	refusal    a refusal needs somebody in the way; remaining: it says how long that lasts
//	outage     an outage is told as an outage, and not as held, lost or done
//	answer     each call is answered, with an answer of the contract
//	return     when its context ends, or in a time of its own if that does not end
//	hold       what is held is renewed and released, what is gone is ErrLost; lost: and Lost is true
//	token      tokens rise from holder to holder, and sharers together have one
//	validity   counts from before the request, and is what was asked for, rounded up
//	free       what is released, undone or over is free, and nothing is left of it
//	gate       a writer that waits keeps new sharers out; order: first come, first served, if claimed
//	state      Inspect, List and Break are true, in each field, and leave out nothing; list: of each name, once
//	wake       a client that listens is told when the one in its way has left
//	close      Close ends what the backend has begun, and nothing is granted afterwards
//
// [Run] plays histories on the service for some 20 seconds, or as long as [HistoriesEnv] says, side by
// side, and then what happens to servers, in up to a minute; or in virtual time, if the harness has a
// service that lives in memory (Harness.Virtual). The special scripts and one cell of each group come first
// and are played however long they take; a run that has no time for them (go test -timeout) has failed. The
// log says how many were played:
//
//	PLAYED: 215 scripts, 71 at least, on etcd in 20.1s
//
// With go test -short, new histories are begun for 8 seconds instead of 12, the check called many has 220
// names instead of 1,100, and [RunVirtual] plays 500 scripts instead of 2,000. Use it while you work on the
// code, and not to prove it.
//
// # How to read what is broken
//
// Each broken rule is reported once, with the shortest script that breaks it. The rules whose breach costs
// users most come first. Begin with the first one: the others often follow from it.
//
//	3 of 17 rules broken in 26 scripts; fix them in this order:
//	1. broken promise: A holder that holds alone is alone until its lease and its MinHold are over. (rule exclusion)
//	  seen: c#2 was granted the lock at +0.2s, and b#1 has it from +0.1s until +12.0s, and so in 9 scripts
//	  probable cause: it does not look who has the lock, or in another step than it takes it
//	    * +0.1000s..+0.1002s  b Acquire (b#1, 12s): holds until +11.9801s
//	    > +0.2000s..+0.2003s  c Acquire (c#2, 12s): holds until +12.0803s
//	  again: CONFORMANCE_SCRIPT='b acquire 0; c acquire 0' go test -run '^TestConformance$/^histories$' .
//
// Clients are letters, b#1 is the first attempt of all, made by b, and times count from when the script
// began. The line with > is the call that broke the rule. Lines with * are what granted the locks that the
// sentence names and what changed them since, and the others are the last four calls before it. Then comes
// a line for the shell that plays the script again. [ScriptEnv] is a script, with steps that are separated
// by semicolons:
//
//	a acquire 0 shared 1m0s MinHold 2s label 3 briefly
//
// has client a ask for the first of two names; after the name comes what is not as usual: shared, yielding,
// before N (an earlier attempt), a time, MinHold, a label by its number, and how long the caller waits.
// Steps that a script can have are those that failures report; anything else is refused, with the reason. A
// script that also needs special names or clocks comes with [SeedEnv], which draws them. Where a script
// breaks nothing when it is played by itself, the report says that it depends on time, and names the script
// by its seed.
//
// Checks by hand are there for what no history shows: claims and their hooks, URLs, Close, encodings of
// names, a crowd of Clients, hundreds and thousands of names, waiters and sharers, the death of one who has
// hundreds, wake-ups in time, the 100 ms of Prompt, what piles up, what Close must leave alone, processes
// that are killed.
//
// The check called many has sharers come for four seconds. If MaxSharers, or as many as there is room for, have come
// by then, one more has to be refused; its log says how many came.
//
// The unit of time is Harness.TTL, or up to four times that on a service that is slow. What fails while the
// machine or the service stalls for a good part of it is tried again, at most twice and with more time, and
// what goes on failing has failed. The log says REPEATED of it; if that is so of more than half of the scripts,
// the run has failed.
//
// # What authors ask
//
//   - DeadHolderSlack is how much later than the end of the TTL a dead holder's lock can be free: the
//     interval at which the service looks for expired locks, and, if a session keeps the lock, the time by
//     which the session outlasts the requested TTL.
//   - Release of the hold's own row that has expired, but that nobody has taken or removed, may return nil
//     or ErrLost. It must remove the row. If the row is another's now, Release returns ErrLost and removes
//     nothing. One that was sent twice may say nil where the first copy found nothing.
//   - If a request was certainly never sent (no connection, a context that was over before), the Grant
//     needs no Hold beside the error. If in doubt, set it.
//   - No wall clock of a client may decide when a lock is over. Send durations, and compare inside the service,
//     at the moment of the statement: in SQL with clock_timestamp(), since now() is the beginning of the
//     transaction.
//   - Tokens come from the service, in the same step as the grant: a client's counter or clock does not
//     rise above those of others.
//   - A renewal changes an existing row and never inserts one: if the row is gone, another may have held
//     the lock meanwhile.
//   - A request may arrive after its take-back. If a TTL ends its lock, that is all right. If a session
//     would keep the lock alive, Undo has to make the request void, or retire the session.
//
// # What it cannot prove
//
// A suite sees what happens in a minute. It does not see rare interleavings inside a service, a disk that
// lies, a network that reorders, nor whether RestsOn is true. And no lock prevents the late write of a holder
// that is stopped between its last look and its write; only tokens that the resource checks do.
//
// The suite's own tests prove that it can fail: each of some 200 backends with one flaw breaks a rule, with
// each of five seeds, or fails the check that is there for it, and each rule is broken by one.
package conformance
