// Package redlock keeps locks in a majority of N independent Redis servers, by
// the Redlock algorithm (Sanfilippo, "Distributed Locks with Redis", the page in
// the Redis documentation), with a guard against servers that were restarted
// without their data and, on request, fencing tokens from the quorum. The
// servers know nothing of each other: there is no replication between them.
// It is for those who have independent Redis servers, of which some may crash without
// stopping the locks; what the servers need is under "For operators".
//
// # The steps, and where they are
//
// With N servers the quorum is ⌊N/2⌋+1. An odd N is advised; 1 works, and is
// then a single Redis with the guard.
//
//  1. The client notes the time.
//
//  2. It asks all nodes at once, for the same key and the same random owner. Each request has a
//     timeout of its own, which holds whatever the driver does, and counts from when the request
//     was sent (poll.go, wait).
//
//  3. With fencing, the quorum that has granted it agrees on the token.
//
//  4. The lock is granted if a quorum has granted it, and the lease is valid for
//
//     TTL − (now − start) − drift, drift = TTL / 100 + 2 ms
//
//     if that is more than zero (driver.Validity). The engine counts the lease from the
//     start, which is the same.
//
//  5. Otherwise the key is released at once on every node that may have it; a vote that is still
//     under way finds its value void. If votes were split, another round with another owner begins after a
//     random pause, which grows. A caller that does not wait is told after ten rounds that
//     votes were split. If another holder has a quorum, the caller is told so (acquire.go).
//
// These five are run, in round.go. What follows from them:
//
//   - If a vote comes after the decision, its node counts as one that has the lock, or the vote is
//     taken back (hold.go, voted).
//   - A renewal goes to all nodes, and succeeds if a quorum had the lock. Nodes without the lock get
//     it again afterwards, and do not count, since somebody may have locked and unlocked in
//     between (hold.go). A release goes to all nodes that may have the lock. It returns when a quorum
//     has answered; it is sent again to the others for as long as they could have the lock
//     (release.go).
//   - "Another holds it" and "too few nodes answered" are different answers: a
//     [driver.Refusal], and [driver.ErrUnavailable] as a [*QuorumError] with the cause for
//     every node.
//   - A node that does not answer costs little: no caller waits for it, a bounded number of
//     requests does, and after three failures in a row it is asked rarely, unless there is no
//     quorum without it (node.go).
//
// Votes, the second phase of a token, renewals and releases are polls: one question to all nodes, and the
// count of their answers (poll.go). What may be left on a node is its place in the hold, which notes each
// answer whenever it comes. Renewing a lock, raising its token and giving it to a node again are one
// script (keep.lua). A request that is not answered in time goes on another connection, to the same run of the
// server; see package single. What is asked rarely (when opening, for wake-ups, by operators) is a
// function that waits for its node; each (notify.go) calls it for all nodes.
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
// key locker:2:runs, and the first look at any other run removes the note of the
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
//     has had a vote from the first since the second was started.
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
// last use (plus what they are ahead of the clock). After that, and after a loss,
// they still rise unless clocks are behind.
//
// Renewals ask for the counter too. So when clocks do misbehave and two hold the
// same lock, the one with the lower token learns of it at its next renewal.
//
// # What it rests on, and the debate about it
//
// Mutual exclusion rests on time: on clocks of holders and servers that differ
// in speed by less than 1 % over a TTL, on no step of the wall clock
// of more servers than a lock has to spare, and on servers that forget nothing
// that they granted, or are kept out. Kleppmann ("How to do distributed
// locking", 2016) calls that too much for a lock on which correctness depends,
// and a process can be paused after its last check; Sanfilippo ("Is Redlock
// safe?", 2016) answers that bounded clock error is a practical assumption and
// that a time check after the acquire covers delays before it. Both are right
// about what they say.
//
// With Options.Fencing there is the rising number that Kleppmann misses. It rests on counters
// that survive on a majority, and not on clocks; a resource that checks it is safe against
// pauses, late requests and clocks. A resource that does not check it gains only that a holder
// learns earlier, at its next renewal. The guard notices the restart of a server that lost
// its data, and waits in the operator's place. Validity counts as Sanfilippo says, and a timer
// watches it in monotonic and in wall time. What remains: without tokens, steps of the clocks
// of a majority give a lock away (Redis up to 7.0 was measured to expire by the wall clock),
// nobody else may write to the servers, and five Redis servers are not a consensus: if you
// already run etcd or ZooKeeper, use that.
//
// # What happens when
//
// There are five nodes, 1 to 5, and two clients, A and B.
//
//   - The reply to A's vote is lost, or the vote arrives after A has given up: as soon as A gives up, it
//     releases the key on every node that may have it, with a note that makes the vote void, and
//     sends that again for as long as the TTL. After that, the TTL has ended the key.
//   - A's late release of one round arrives in the next: each round has an owner of its own,
//     and a release compares the whole value.
//   - Node 3 restarts empty while A holds 1, 2 and 3: the guard keeps it out, and it is
//     given no lock again either, since that could complete B's quorum with a vote of 3 from
//     before the restart. A renews on 1, 2 and those of 4 and 5 that it has; with fewer than a
//     quorum, A is told that the lock is lost.
//   - A is granted 1, 2 and 3 while 4 and 5 are still looked at: these are given the lock
//     at once, and count from the next renewal on.
//   - A stops (SIGSTOP, a sleeping machine) before it has the lock: validity counts from before
//     the first request, by two clocks, and A is told that it has none. If it stops
//     afterwards, it writes after its lease: no lock prevents that, and the resource has to
//     check the token.
//   - The clock of one node jumps forward: the others decide, as long as the lock has a node to
//     spare. If those of a quorum jump, two hold: not prevented. With Fencing the second has
//     a higher token, and the first learns of it at its next renewal.
//   - A clock jumps back: the locks of dead holders are free later.
//   - Node 3 refuses a client: it asks for another password, its user may not run scripts, it is not a
//     Redis. It counts as a node that is down. The client logs a warning, once, and goes on with the
//     others; so does one that [Open] starts. [Backend.Check] says it too. Only a majority that refuses is
//     an error, at once.
//   - An operator's Break, cut off from 1 and 2, removes A's lock from 3, 4 and 5. A, cut off from 4 and 5,
//     then unlocks: 1 and 2 had the lock, 3 did not. That looks the same as a lock that A still holds, of
//     which 3 has lost its copy. In both cases a majority is free of the lock now, so Unlock returns nil.
//     It returns [driver.ErrLost] only if so many nodes no longer had the lock that no majority can have
//     had it. A holder that has to know relies on the lease's validity (locker.Lease.Until).
//
// "go test ./redlock -run Search" tries all interleavings of two clients and three nodes, with
// late and repeated deliveries, lost answers, renewals and repairs, in models of the protocol,
// not in the code. In 4.1 million states with keys that expire at any moment and counters that
// are kept, no token was given twice, later holders had higher ones, and no renewal
// succeeded that began after a holder with a higher token got the lock. In 6.9 million with one
// server that restarts empty (27 million with LOCKER_SEARCH=full), no two leases were valid
// at once. Without the guard, or where a guarded node is given a lock again, the searches find two
// holders; without the comparison in the second phase, a token twice; if a repaired node counts,
// or a renewal does not ask for the counter, two leases that overlap. They say nothing about
// lost counters.
//
// # For operators
//
//   - Five servers that fail independently: machines, power, racks. No replicas, no
//     Sentinel, no fail-over: a promoted replica is a lost vote.
//   - Persistence: appendonly yes, appendfsync always, no-appendfsync-on-rewrite no. With
//     less, a server is out for MaxTTL after each restart. Switch it on in the running
//     server, never by a restart, which begins with an empty log: CONFIG SET appendonly yes
//     and CONFIG SET appendfsync always; wait until INFO persistence has
//     aof_rewrite_in_progress:0 and aof_last_bgrewrite_status:ok; then CONFIG REWRITE. Clients
//     that connect after that leave the note. If it has to be a restart, keep all clients away
//     for MaxTTL after it. Never switch it off or weaken it while a server runs.
//   - Restart one server at a time, with MaxTTL and some seconds between. With NoRestartGuard,
//     leave a server down for longer than the longest TTL after each crash, yourself.
//   - Do not move an address (DNS, a virtual IP, a Kubernetes Service) to a server that is
//     already running: it knows none of the locks of the one before, and two can hold one.
//     Stop the old server, then start the new one with an empty data directory; or wait for
//     MaxTTL between stopping the old one and moving the address.
//   - Let NTP slew and never step (chrony: makestep only at boot; ntpd: -x), change no clock
//     by hand, and treat a virtual machine that was suspended or migrated live as restarted.
//   - Choose a TTL of seconds: a holder needs time for two renewals that fail. MaxTTL is also
//     how long a restarted server is missing: keep it near the TTL in use. A client that meets
//     a lock longer than its MaxTTL logs a warning, once; one that meets none cannot know.
//   - maxmemory-policy noeviction, never FLUSHALL, a database of its own for the locks.
//   - NodeTimeout: above the slowest usual round trip (redis-cli --latency), well below the TTL.
//   - Watch what Backend.Check ("locker check") says of each node, and the clocks' offsets.
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
// ones of locker.Open:
//
//	node_timeout    Options.NodeTimeout
//	restart_guard   on (MaxTTL is 30 s), off, or a duration: the longest TTL of any client
//	fencing         on or off
//	tls             on or off, for the scheme redlock
//	ca, cert, key   PEM files: the authority to trust, the client's certificate and key (TLS only)
//	server_name     the name to expect in the servers' certificates (TLS only)
//
// # Connections that end
//
// A question whose connection was closed without an answer (by an idle limit, by a
// load balancer) is sent again at once, on the next connection; see package single,
// also for why the clients should serve the locks alone, for what a server can do that
// is not to be trusted, and for hooks of the program's clients, which see few requests.
//
// # Access
//
// Redis 7.0 is the oldest that works, and an older one votes for nothing: it may keep scripts over
// a restart, with its data. Beside what package single needs, an ACL user needs +info,
// +script|load, and +config|get for the look at persistence. Keys are
// locker:2:{name} and, next to it, :quorum (the counter, with who raised it),
// :wait and :void:…, and locker:2:runs, the note of the restart guard.
//
// [single]: https://pkg.go.dev/github.com/golockers/locker/single
package redlock
