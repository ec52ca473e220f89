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
package compare
