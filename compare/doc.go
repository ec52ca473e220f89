// Package compare runs lock services side by side, makes things go wrong, and says which guarantees
// held: what `locker compare` does, for programs and for the makers of other backends.
//
// # One trial, from top to bottom
//
// A bench is where one service is tried (bench.go). It has three holders: this very program, started again
// (child.go, holder.go), each with proxies of its own to every server of the service. A round is a
// trial of some names at the same time: holder a takes them, b waits, then the round's script
// (rounds.go) does something to a, to its network or to the servers, until b has what it waited for,
// everything is mended, and c looks whether something was left behind. Faults of servers are the lab's, or
// the user's own commands (labs.go).
//
// A holder looks at its lease while it holds. It tells the parent what it asked, what it was told, and
// when, on the one monotonic clock of the host, through a pipe that no fault touches. The parent adds each
// fault and the evidence that it took effect; it has the journal also of a holder that is killed, and
// writes it down when the round is over. What all of that means is not decided here: package
// internal/check judges each round, and internal/report shows the verdicts.
//
// # What the machine can carry
//
// A busy machine makes any lock service look bad, so no more is tried at once than the machine can carry.
// While the servers start, a probe measures how long a process that wakes up has to wait for a processor.
// If that is less than 20 ms (99 times in 100), there are two trials under way for each processor, with
// TTLs of a second (two with URLs, and --ttl overrides this). For each further 20 ms, TTLs are a second (or
// two) longer, and there is one trial for each processor; from 80 ms on, TTLs are four times as long, and
// there is one trial at a time. The choice is printed, and the report has it. No trial begins before all
// servers are up. With TTLs of a second, everything once is some three minutes of trials, of which as many
// run at once as the choice says.
//
// # What the machine may be to blame for
//
// Two at once, and tokens that do not rise, always count. A heartbeat in each process, that of the command
// included, shows when it was not run: time in which any was not run for 50 ms, or the one concerned for 10
// ms, is left out of "too late". From "left behind", the time is left out in which the servers owed the
// process that waits an answer. The proxies see each request and its answer, which is owed after 20 ms.
//
// A lease that was lost where nothing was wrong counts only if
//
//   - it was taken away before its deadline, or
//   - it was not renewed by then, although for at least three quarters of the TTL the holder's process was
//     run and its servers owed it no answer: they can be shown to have answered in time.
//
// Otherwise the cell is "?", whatever other rounds showed, and the reason has both times. Where clients do
// not go through proxies, nobody sees the answers, and only the first counts.
package compare
