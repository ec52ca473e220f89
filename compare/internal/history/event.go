// Package history is what `locker compare` writes down while it runs: the events of each trial, and the
// report that comes out. All times are nanoseconds of the host's monotonic clock, which is one for all
// processes, see [Now]. A directory of a run holds
//
//	history.jsonl   [Event] values, one JSON object on a line, trial after trial
//	report.json     a [Report]
//	report.html     the same for people
package history

// Event is one line of a history. Which fields are set depends on its Kind.
//
// A caller is one goroutine of a child that uses one lease at a time: its
// events about one name come in the order in which it lived them, an ask first.
// A child that is started again after a kill takes a new process name.
type Event struct {
	At      int64  `json:"t"`                    // Now() when it was written
	Kind    Kind   `json:"k"`                    //
	Service string `json:"s,omitempty"`          // a Service's Name, where a trial begins
	Trial   string `json:"tr,omitempty"`         // unique in a run
	Process string `json:"p,omitempty"`          // the child, or the one that a fault is for
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

// What a child writes. Where a time counts against a service, the event is written on the side that is in
// the service's favour: Granted after Lock has returned, UnlockBegin before Unlock is called.
const (
	Ask         Kind = "ask"          // before Lock, or TryLock (Value 1)
	Granted     Kind = "granted"      // it returned a lease, with Token and Until
	Refused     Kind = "refused"      // it returned that another holder has the lock
	GaveUp      Kind = "gave_up"      // it returned any other error, such as the context's end
	Renewed     Kind = "renewed"      // the lease's Until has moved on to this Until
	ToldLost    Kind = "told_lost"    // the holder knows that it is a holder no more, without having asked
	UnlockBegin Kind = "unlock_begin" // before Unlock: the holder does nothing from here on
)

// What the parent writes, and, of stalls, a child, too. Stall and Slow have the time when they end.
const (
	TrialBegin Kind = "trial_begin" // Fault is what is going to be done, Value the leases' TTL
	TrialEnd   Kind = "trial_end"   // all calls had time to return. Error: why it does not count; Process: crashed
	FaultBegin Kind = "fault_begin" // Process is the child that it is for, or Value servers are taken away
	Evidence   Kind = "evidence"    // the fault was seen to have its effect; Detail says by what
	FaultEnd   Kind = "fault_end"   // the fault is healed; Detail says if it could not be
	Stall      Kind = "stall"       // for Value nanoseconds a heartbeat of Process ("": the parent) did not run
	Slow       Kind = "slow"        // for Value nanoseconds servers owed Process an answer. Detail: why nobody saw it
)
