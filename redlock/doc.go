// Package redlock keeps locks in a majority of N independent Redis servers, by
// the Redlock algorithm (Sanfilippo, "Distributed Locks with Redis", the page in
// the Redis documentation), with a guard against servers that were restarted
// without their data and, on request, fencing tokens from the quorum. The
// servers know nothing of each other: there is no replication between them.
//
// # The steps, and where they are
//
// With N servers the quorum is ⌊N/2⌋+1. An odd N is advised; 1 works, and is
// then a single Redis with the guard.
//
//  1. The client notes the time and asks all nodes at once, for the same key and the
//     same random owner. Each request has a timeout of its own, which holds whatever
//     the driver does (round.go, run; internal/redisconn keeps the limit, and
//     counts it from when the request was sent).
//
//  2. The lock is granted as soon as a quorum has granted it. The lease is valid for
//
//     TTL − (now − start) − drift, drift = TTL × Options.Drift + 2 ms
//
//     if that is more than zero (round.go, run). The engine counts the lease
//     from the start, which is the same.
//
//  3. Otherwise the key is released at once on every node that may have it. If votes
//     were split, another round with another owner begins after a random pause. If
//     another holder has a quorum, the caller is told so (acquire.go).
//
//  4. If a vote comes after the decision, its node counts as one that has the lock,
//     or the vote is taken back (hold.go, take).
//
//  5. A renewal goes to all nodes, and succeeds if a quorum had the lock. Nodes
//     without the lock get it again afterwards, and do not count (hold.go). A release
//     goes to all nodes that may have the lock. It returns when a quorum has
//     answered; for as long as the TTL, it is sent again to the others (release.go).
//
//  6. "Another holds it" and "too few nodes answered" are different errors:
//     [locker.ErrHeld], and [locker.ErrUnavailable] as a [*QuorumError] with the
//     cause for every node.
//
//  7. A node that does not answer costs little: no caller waits for it, a bounded number
//     of requests does, and after three failures in a row it is asked rarely, unless
//     there is no quorum without it (node.go).
//
// A round that votes and the hold that it wins are two things. All that a round knows
// belongs to the goroutine of its Acquire, which reads the nodes' answers (answers.go).
// Renewals and releases are asked in the same way. What is asked rarely (when opening, for
// wake-ups, by operators) is a function that waits for its node; each (answers.go) calls it
// for all nodes.
// What may be left on the nodes outlives the round, in the hold. One goroutine removes
// it in the end (release.go).
//
// # The restart guard
//
// A server that was restarted without its data votes again for a lock that is still
// held: A holds 1, 2 and 3 of five, 3 restarts, and B gets 3, 4 and 5. So a node does
// not vote until it has been up for Options.MaxTTL. By then, every lock that it may
// have forgotten is over (guard.go). This takes up to a second more, since servers
// count whole seconds.
//
// A server votes sooner if it has proven that it forgets nothing. The proof has two
// parts. First, the server is configured to write to disk before it answers
// (appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, if the client
// may read that with CONFIG GET). Second, it still has a note from before its
// restart: the first look at each durable run writes the name of that run to the
// key locker:1:runs, and the first look at any other run removes the note of the
// run before (note.lua). A server that comes back without its disk has no note,
// whatever its configuration says. Neither has a new server, which therefore waits
// for MaxTTL once. A client that has seen the run before accepts only the note of
// that run.
//
// A restart is noticed without asking: the text of the script by which a server
// votes names its run_id, and a server that was restarted does not know that
// script. Only after a new look at its run_id and uptime is it given another.
// It is not given a held lock again during that time either: the exhaustive
// search in search_exclusion_test.go found two holders where it was.
//
// All clients need the same MaxTTL, which is also the longest TTL that they can
// use. A client with a shorter one lets a restarted server vote while another's
// lock is still held. From a URL it is 30 s; a ttl above that is refused until
// the URL has restart_guard=DURATION, which then has to be in the URL of every
// client, with the longest ttl of any of them. A brand-new set of servers
// gives out no locks for MaxTTL; the error says which nodes are kept out and for
// how long.
//
// The guard does not notice
//
//   - FLUSHALL, and eviction;
//   - a clock that is stepped before a client first sees a server, since the
//     uptime follows the wall clock (a client that saw the run before notices it);
//   - persistence that was switched off or weakened (CONFIG SET) while a durable
//     server ran, and a disk that was set back to an earlier state (a snapshot of
//     a volume);
//   - an address that was moved to another server that was already up for MaxTTL:
//     a new client lets it vote at once, as nothing there tells of the server
//     before. A client that used that one keeps the other out for MaxTTL, if it
//     has had a vote from the first since the second was started. docs/redlock.md
//     says how to replace a server.
//
// # Fencing tokens
//
// With Options.Fencing each node keeps a counter per name, and a lease has a
// token. The acquire has a second phase: of the quorum's counters and clocks
// the highest is taken, plus one, and each node that has our key raises its
// counter to that, unless another has raised it as high. A quorum has to
// agree. Two quorums share a node, and on that node the later holder's first
// phase comes after the earlier one's second, or one of the two is refused. So
// tokens are unique and rise in the order of time, whatever any clock does, as
// long as the counters survive on a majority. They expire a day after their
// last use (plus what they are ahead of the clock); Options.KeepTokens keeps
// them for ever. After a loss they still rise unless clocks are behind.
//
// Renewals ask for the counter too. So when clocks do misbehave and two hold the
// same lock, the one with the lower token learns of it at its next renewal.
//
// # What it rests on, and the debate about it
//
// Mutual exclusion rests on time: on clocks of holders and servers that differ
// in speed by less than Options.Drift over a TTL, on no step of the wall clock
// of more servers than a lock has to spare, and on servers that forget nothing
// that they granted, or are kept out. Kleppmann ("How to do distributed
// locking", 2016) calls that too much for a lock on which correctness depends,
// and a process can be paused after its last check; Sanfilippo ("Is Redlock
// safe?", 2016) answers that bounded clock error is a practical assumption and
// that a time check after the acquire covers delays before it. Both are right
// about what they say. docs/redlock.md has the arguments, what guard and tokens
// change about them, what they do not, and advice for operators.
//
// Where a lock is only to save work, a [single] Redis is simpler. Where it
// must be right, have the resource check the token.
//
// # URLs
//
//	redlock://[user:password@]host1[:port],host2[:port],host3[:port][/db]
//	redlocks://…                                             the same over TLS
//
// Ports default to 6379, IPv6 hosts stand in brackets. Two addresses that lead to
// the same server (the same run_id) are an error. Parameters beside the common
// ones of [locker.Openers.Open] and, for TLS, those of [locker.URL.TLSConfig]:
//
//	node_timeout    Options.NodeTimeout
//	drift           Options.Drift, such as 0.01
//	restart_guard   on (MaxTTL is 30 s), off, or a duration: the longest TTL of any client
//	fencing         on or off
//	keep_tokens     on or off
//	tls             on or off, for the scheme redlock
//
// # Connections that end
//
// A question whose connection was closed without an answer (by an idle limit, by a
// load balancer) is sent again at once, on the next connection; see package single,
// also for what a server can do that is not to be trusted, and for hooks of the program's clients,
// which see few requests.
//
// # Access
//
// Redis 6.2 is the oldest that works, and 7.0 the oldest on which the guard costs
// nothing. Beside what package single needs, an ACL user needs +info,
// +script|load, and +config|get for the look at persistence. Keys are
// locker:1:{name} and, next to it, :quorum (the counter, with who raised it),
// :wait and :void:…, and locker:1:runs, the note of the restart guard.
//
// [single]: https://pkg.go.dev/github.com/golockers/locker/single
package redlock
