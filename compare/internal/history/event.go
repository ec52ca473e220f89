// Package history is what `locker compare` records while it runs: the events of each trial, and the
// resulting report. All times are nanoseconds of the host's monotonic clock, which all processes share,
// see [Now]. The directory of a run has
//
//	history.jsonl   [Event] values, one JSON object on a line, trial after trial
//	report.json     a [Report]
//	report.html     the same for people
package history

// Event is one line of a history. Which fields are set depends on its Kind.
//
// A caller is one goroutine of a child that uses one lease at a time: its events about one name are in
// the order in which they happened, an ask first. A child restarted after a kill gets a new process
// name.
type Event struct {
	At      int64  `json:"t"`                    // Now() when it was written
	Kind    Kind   `json:"k"`                    //
	Service string `json:"s,omitempty"`          // a Service's Name, where a trial begins
	Trial   string `json:"tr,omitempty"`         // unique in a run
	Process string `json:"p,omitempty"`          // the child, or the one with the fault
	Caller  int    `json:"c,omitempty"`          // the goroutine in the child
	Name    string `json:"n,omitempty"`          // the lock's name
	Token   uint64 `json:"tok,omitempty,string"` // a string: scripts read numbers as floats
	Until   int64  `json:"u,omitempty"`          // see the Kind; 0: no deadline
	Fault   string `json:"f,omitempty"`          // a Fault's ID
	Value   int64  `json:"v,omitempty"`          // see the Kind
	Error   string `json:"e,omitempty"`          // what the library answered
	Detail  string `json:"d,omitempty"`          // for people
}

// Kind says what an event is.
type Kind string

// What a child writes. If a time counts against a service, the event is written at the moment that
// favors the service: Granted after Lock has returned, UnlockBegin before Unlock is called.
const (
	Ask         Kind = "ask"          // before Lock, or TryLock (Value 1)
	Granted     Kind = "granted"      // it returned a lease, with Token and Until
	Refused     Kind = "refused"      // it returned that another holder has the lock
	GaveUp      Kind = "gave_up"      // it returned any other error, such as the context's end
	Renewed     Kind = "renewed"      // the lease's Until has moved to this Until
	ToldLost    Kind = "told_lost"    // the holder has learned that it no longer holds the lock
	UnlockBegin Kind = "unlock_begin" // before Unlock: the holder does nothing from here on
)

// What the parent writes and, for stalls, also a child. The time of Stall and Slow is their end.
const (
	TrialBegin Kind = "trial_begin" // Fault is the coming fault, Value the leases' TTL
	TrialEnd   Kind = "trial_end"   // all calls had time to return. Error: why it does not count; Process: crashed
	FaultBegin Kind = "fault_begin" // Process is the child with the fault, or Value servers are taken away
	Evidence   Kind = "evidence"    // the fault's effect was seen; Detail describes it
	FaultEnd   Kind = "fault_end"   // the fault is healed; Detail says if it could not be
	Stall      Kind = "stall"       // for Value nanoseconds a heartbeat of Process ("": the parent) did not run
	Slow       Kind = "slow"        // for Value nanoseconds servers owed Process an answer. Detail: why it was not visible
)
