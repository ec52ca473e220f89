package compare

import "github.com/golockers/locker/compare/internal/history"

// clientFaults are what is done to holders and to their network, each with the one name that it has
// everywhere. They need nobody's permission.
var clientFaults = []struct {
	history.Fault
	net    bool // it needs proxies
	shares bool // it needs shared locks
	script func(r *round)
}{
	{Fault: history.Fault{ID: "holder-stopped", Class: history.Stopped,
		What: "The holder's process stands still past the TTL, and goes on then, as in a pause of the garbage " +
			"collector or of a virtual machine."}, script: func(r *round) { r.stopped(false) }},
	{Fault: history.Fault{ID: "holder-killed", Class: history.Killed,
		What: "The holder's process ends without a word."}, script: (*round).holderKilled},
	{Fault: history.Fault{ID: "holder-stopped-act", Class: history.Stopped,
		What: "The holder has looked at its lease and stands still before it acts. When it goes on, it acts at " +
			"once, and another has held the lock meanwhile."}, script: func(r *round) { r.stopped(true) }},
	{Fault: history.Fault{ID: "holder-cut-off", Class: history.Client,
		What: "What the holder sends and what it is sent vanishes, and no connection breaks."},
		net: true, script: func(r *round) { r.cut(drop) }},
	{Fault: history.Fault{ID: "holder-slow-cut-off", Class: history.Client,
		What: "Every byte of the holder takes a tenth of the TTL each way, or a fiftieth where there are several " +
			"servers; when it has the lock, it is cut off. Who counts a lease from the answer believes too long."},
		net: true, script: (*round).holderSlow},
	{Fault: history.Fault{ID: "half-cut", Class: history.Client,
		What: "The holder's renewals arrive, and their answers do not."},
		net: true, script: func(r *round) { r.cut(dropReplies) }},
	{Fault: history.Fault{ID: "replies-lost", Class: history.Client,
		What: "A client's request is carried out, and it never gets the answer. It gives up; what it has left " +
			"has to go away."}, net: true, script: (*round).repliesLost},
	{Fault: history.Fault{ID: "requests-late", Class: history.Client,
		What: "A client's request is under way for so long that the client has given up; it arrives while " +
			"another holds the lock."}, net: true, script: (*round).requestsLate},
	{Fault: history.Fault{ID: "unlock-late", Class: history.Client,
		What: "A holder's release arrives when its lease is over and another holds the lock."},
		net: true, script: (*round).unlockLate},
	{Fault: history.Fault{ID: "sharing", Class: history.Load,
		What: "Readers share the lock, come and go, and writers want it alone."},
		shares: true, script: (*round).readersAndWriters},
	{Fault: history.Fault{ID: "sharer-stopped", Class: history.Stopped,
		What: "One of two readers who share the lock stands still past the TTL, as a holder that is stopped; the " +
			"other one leaves, and a writer waits."},
		shares: true, script: func(r *round) { r.share(r.c); r.stopped(false) }},
	{Fault: history.Fault{ID: "sharer-cut-off", Class: history.Client,
		What: "One of two readers who share the lock is cut off, as a holder that is; the other one leaves, and " +
			"a writer waits."}, net: true, shares: true, script: func(r *round) { r.share(r.c); r.cut(drop) }},
}

// Faults of servers, which are done by the lab, or by the user's own commands.
var (
	serversPaused = history.Fault{ID: "server-paused", Class: history.Pause,
		What: "The server, or the leader of several, stands still for longer than a TTL, and goes on."}
	leaderKilled = history.Fault{ID: "leader-killed", Class: history.Down,
		What: "The server that leads is killed, and another takes over."}
	memberAlone = history.Fault{ID: "member-isolated", Class: history.Server,
		What: "The leader reaches its clients and none of the other members."}
	minorityDown = history.Fault{ID: "minority-down", Class: history.Down,
		What: "As many servers as the service can spare are killed, and started again later."}
	majorityDown = history.Fault{ID: "majority-down", Class: history.Down,
		What: "One server more than the service can spare is killed, and started again later."}
	restarted = history.Fault{ID: "restart", Class: history.Restart,
		What: "All servers of the service are killed (SIGKILL) and started again with what they had on disk."}
	restartedEmpty = history.Fault{ID: "restart-empty", Class: history.DataLost,
		What: "A server is killed and started again with an empty disk."}
	failedOver = history.Fault{ID: "fail-over", Class: history.Failover,
		What: "The primary is killed when its replica has not yet got the last writes; the replica takes its " +
			"place."}
	clockStepped = history.Fault{ID: "clock-stepped", Class: history.Clock,
		What: "A server's wall clock jumps forward by a minute."}

	labFaults = []history.Fault{serversPaused, leaderKilled, memberAlone, minorityDown, majorityDown, restarted,
		restartedEmpty, failedOver, clockStepped}
)
