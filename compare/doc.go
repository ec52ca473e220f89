// Package compare runs lock services side by side, injects faults, and reports which guarantees held.
// It is `locker compare`, for programs and for authors of other backends.
//
// # One trial, from top to bottom
//
// A bench tries one service (bench.go). It has three holders: this very program, started again
// (child.go, holder.go), each with its own proxies to every server of the service. A round is a trial
// of some names at the same time: holder a takes them, b waits, then the round's script (rounds.go)
// does something to a, to its network or to the servers, until b has what it waited for and everything
// is repaired; then c checks whether something was left behind. Server faults come from the lab or from
// the user's own commands (labs.go).
//
// A holder watches its lease while it holds. It reports what it asked, what it was told, and when, on
// the host's one monotonic clock, through a pipe that no fault touches. The parent adds each fault and
// the evidence that it took effect. So it has the journal even of a killed holder, and writes it down
// when the round has ended. What all of that means is not decided here: package internal/check judges
// each round, and internal/report shows the verdicts.
//
// # What the machine can carry
//
// A busy machine makes any lock service look bad, so the run tries no more at once than the machine can
// carry. While the servers start, a probe measures how long a waking process waits for a processor. If
// that is less than 20 ms (99 times in 100), two trials run per processor, with TTLs of a second (two
// with URLs; --ttl overrides this). For each further 20 ms, TTLs are a second (or two) longer, with one
// trial per processor; from 80 ms on, TTLs are four times as long, with one trial at a time. The choice
// is printed and in the report. No trial begins before all servers are up. With TTLs of a second,
// trying everything once takes some three minutes of trials, of which as many run at once as chosen.
//
// # What the machine may be to blame for
//
// Two holders at once, and tokens that do not increase, always count. A heartbeat in each process,
// including the command's own, shows when it was not run. Time in which any process was not run for 50
// ms, or the affected one for 10 ms, does not count for "told". For "freed", time in which the servers
// owed the waiting process an answer does not count. The proxies see each request and its answer, which
// is owed after 20 ms.
//
// A lease that was lost without a fault counts only if
//
//   - it was taken away before its deadline, or
//   - it was not renewed by then, although for at least three quarters of the TTL the holder's process
//     ran and its servers owed it no answer: they demonstrably answered in time.
//
// Otherwise the cell is "?", whatever other rounds showed, and the reason gives both times. If clients
// do not use proxies, the answers are not visible, and only the first case counts.
package compare
