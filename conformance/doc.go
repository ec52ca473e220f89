// Package conformance is the test suite that every [driver.Backend] must pass, whether from this module
// or from a third party. A backend that passes can be used wherever a [locker.Locker] is needed, and
// keeps its [locker.Guarantees], as far as tests can tell.
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
// The package example is a complete backend with its harness, and the example Network is one that uses
// a network: copy them. Programs that are not tests use [Check].
//
// Every claim of the Guarantees must hold, and every optional ability must work ([driver.Operator],
// [driver.Notifier] and so on); a claim never skips a test. What is not claimed must be absent, or
// refused with [errors.ErrUnsupported]. If proving a claim needs a hook that the [Harness] lacks, the
// suite fails, unless Harness.Unproven gives a reason, which is then reported:
//
//	claim                             hook
//	Scope wider than one process      Delete: an operator, or an eviction
//	Scope is the network              Cut: a connection that can be broken
//	DeadHolder at once                Victim: a program that is killed
//	DeadHolder later than at once     Victim, or Cut, which replaces it
//	Fencing unless data is set back   Restart
//	SurvivesRestart                   Restart
//	SurvivesFailover                  Failover
//	ServerCrashes                     Crash, and Hang if servers can be stopped
//	the same, of one client           CutSome, if clients ask a quorum of servers themselves
//	SurvivesClockJump                 JumpClock, if exclusion involves servers
//	no client's clock decides         OffClock, if it is possible
//	Close keeps what the user owns    Pair, if a backend is made from a driver's client
//	SurvivesPause                     none: package compare tests it
//
// Cut matters most. Between its client and the service there must be a [Proxy], or a dialer, that can
// hold, drop and reset data in both directions. Held data must arrive later even if its sender has
// closed the connection: this creates ghosts, requests that their senders have given up but that are
// still carried out.
//
//	Cut: func(t conformance.T) (driver.Backend, conformance.Fault) {
//		addr, fault := conformance.Proxy(t, server.Addr)
//		return connect(t, addr), fault
//	},
//
// # How promises are judged
//
// The contract is stated once, as rules that hold for whatever several clients do. Playing a script
// yields a history: clients acquire, wait, renew, release, undo, pass, raise tokens, inspect, list,
// break, listen and close, under contexts that end early or never, with difficult names, labels and
// TTLs. Meanwhile requests are held, lost or overtaken, replies are lost or late, connections to all or
// some servers are reset, owners ask again, locks are deleted, servers restart and clocks step. Half of
// the scripts are cells of the matrix of operation, fault and ending, with a rival client alongside;
// the others are random. For each attempt the judge knows when its holder may act, until when the
// service must keep the lock, and when something of it may be there. An answer that these times do not
// explain breaks a rule:
//
//	exclusion  an exclusive holder is alone until its lease and its MinHold have ended
//	refusal    a refusal requires a holder in the way; remaining: and says how long that one lasts
//	outage     an outage is reported as an outage, and not as held, lost or done
//	answer     every call returns an answer that the contract allows
//	return     when its context ends, or in the backend's own time if that never ends
//	hold       a hold can be renewed and released, a gone one is ErrLost; lost: Lost is called for it alone
//	token      tokens increase from holder to holder, and concurrent sharers have the same
//	validity   counts from before the request, and is the requested TTL, rounded up
//	free       a released, undone or expired lock is free, and nothing of it is left
//	gate       a waiting writer keeps new sharers out; order: first come, first served, if claimed
//	state      Inspect, List and Break are correct and complete; list: each name once
//	wake       a listening client is woken when the holder in its way has left
//	close      Close ends what the backend has started, and nothing is granted afterwards
//
// [Run] plays histories on the service, many at once, for some 20 seconds or as long as [HistoriesEnv]
// says, and then server events for up to a minute; or in virtual time, if the harness has a service
// that lives in memory (Harness.Virtual). The special scripts and one cell of each group come first and
// are played however long they take; a run without enough time for them (go test -timeout) fails. The
// log says how many were played:
//
//	PLAYED: 215 scripts, 71 at least, on etcd in 20.1s
//
// With go test -short, new histories begin for 8 seconds instead of 12, the check named many has 220
// names instead of 1,100, and [RunVirtual] plays 500 scripts instead of 2,000. Use it while you work on
// the code, not to prove it.
//
// # How to read a failure
//
// Each broken rule is reported once, with the shortest script that breaks it. The rules whose breach
// costs users most come first. Fix the first one first: the others often follow from it.
//
//	3 of 17 rules broken in 26 scripts; fix them in this order:
//	1. broken promise: An exclusive holder is alone until its lease and its MinHold have ended. (rule exclusion)
//	  seen: c#2 was granted the lock at +0.2s, and b#1 has it from +0.1s until +12.0s, and so in 9 scripts
//	  probable cause: it does not check whether the lock is held, or not in the step that takes it
//	    * +0.1000s..+0.1002s  b Acquire (b#1, 12s): holds until +11.9801s
//	    > +0.2000s..+0.2003s  c Acquire (c#2, 12s): holds until +12.0803s
//	  again: CONFORMANCE_SCRIPT='b acquire 0; c acquire 0' go test -run '^TestConformance$/^histories$' .
//
// Clients are letters, b#1 is the first attempt of all, made by b, and times count from the beginning
// of the script. The line with > is the call that broke the rule. Lines with * granted the locks that
// the sentence names, or changed them since; the others are the last four calls before it. The last
// line is a shell command that plays the script again. [ScriptEnv] is a script, with steps separated by
// semicolons:
//
//	a acquire 0 shared 1m0s MinHold 2s label 3 briefly
//
// makes client a ask for the first of two names. After the name come the deviations from the default:
// shared, yielding, before N (an earlier attempt), a time, MinHold, a label by its number, and how long
// the caller waits. A script can have the steps that failures report; any other is refused, with the
// reason. A script that also needs special names or clocks comes with [SeedEnv], which draws them. If a
// script breaks nothing when played by itself, the report says that it depends on timing, and
// identifies the script by its seed.
//
// Handwritten checks cover what no history shows: claims and their hooks, URLs, Close, encodings of
// names, a crowd of Clients, hundreds and thousands of names, waiters and sharers, the death of a
// holder of hundreds, prompt wake-ups, the 100 ms of Prompt, leaks, what Close must leave alone, killed
// processes.
//
// The check named many adds sharers for four seconds. If MaxSharers, or as many as there is room for,
// hold the name by then, one more must be refused; the log says how many there were.
//
// The unit of time is Harness.TTL, or up to four times that on a slow service. A test that fails while
// the machine or the service stalls for a good part of that is repeated, at most twice and with more
// time; if it still fails, it has failed. The log marks it REPEATED; if that happens to more than half
// of the scripts, the run fails.
//
// # Questions from authors
//
//   - DeadHolderSlack is how much later than the end of the TTL a dead holder's lock can become free:
//     the interval at which the service looks for expired locks and, if a session keeps the lock, the
//     time by which the session outlasts the requested TTL.
//   - Release of the hold's own expired row, which nobody has taken or removed, may return nil or
//     ErrLost. It must remove the row. If the row is another holder's by now, Release returns ErrLost
//     and removes nothing. A Release that was sent twice may return nil although the first copy found
//     nothing.
//   - If a request was certainly never sent (no connection, a context that had already ended), the
//     Grant needs no Hold with the error. If in doubt, set it.
//   - No client's wall clock may decide when a lock ends. Send durations, and compare inside the
//     service, at the moment of the statement: in SQL with clock_timestamp(), because now() is the
//     beginning of the transaction.
//   - Tokens come from the service, in the same step as the grant: nothing raises a client's own
//     counter or clock above those of other clients.
//   - A renewal updates an existing row and never inserts one: if the row is gone, another may have
//     held the lock meanwhile.
//   - A request may arrive after its take-back. If a TTL ends its lock, that is fine. If a session
//     would keep the lock alive, Undo must make the request void or retire the session.
//
// # What it cannot prove
//
// A suite sees what happens in a minute. It does not see rare interleavings inside a service, a disk
// that lies, a network that reorders, or whether RestsOn is true. And no lock prevents the late write
// of a holder that was paused between its last check and its write; only tokens that the resource
// checks do.
//
// The suite's own tests prove that it can fail: each of some 200 backends with one flaw breaks a rule
// with each of five seeds, or fails the check made for it, and each rule is broken by at least one.
package conformance
