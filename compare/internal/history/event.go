package history

// Event is one line of a journal. Which fields are set depends on its Kind.
//
// A caller is one goroutine of a child that uses one lease at a time: its
// events about one name come in the order in which it lived them, an ask first.
// A child that is started again after a kill takes a new process name.
type Event struct {
	At      int64  `json:"t"`                    // Now() when it was written
	Kind    Kind   `json:"k"`                    //
	Service string `json:"s,omitempty"`          // a Service's Name
	Trial   string `json:"tr,omitempty"`         // unique in a run
	Process string `json:"p,omitempty"`          // the child, or the one that a fault is for
	Caller  int    `json:"c,omitempty"`          // the goroutine in the child
	Name    string `json:"n,omitempty"`          // the lock's name
	Token   uint64 `json:"tok,omitempty,string"` // a string: scripts read numbers as floats
	Until   int64  `json:"u,omitempty"`          // see the Kind; 0: no deadline
	Seq     uint64 `json:"q,omitempty"`          // an act's number, per caller
	Fault   string `json:"f,omitempty"`          // a Fault's ID
	Value   int64  `json:"v,omitempty"`          // see the Kind
	Shared  bool   `json:"sh,omitempty"`         // of an Ask: together with others that ask so
	Error   string `json:"e,omitempty"`          // what the library answered
	Detail  string `json:"d,omitempty"`          // for people
}

// Kind says what an event is.
type Kind string

// What a child writes. Where a time counts against a service, the event is
// written on the side that is in the service's favour: Granted after Lock has
// returned, UnlockBegin before Unlock is called.
const (
	// Ask: before Lock or TryLock is called. Until is when its context ends.
	// Value is 1 for a TryLock, which does not wait.
	Ask Kind = "ask"
	// Granted: it returned a lease, with Token and Until.
	Granted Kind = "granted"
	// Refused: it returned that another holder has the lock.
	Refused Kind = "refused"
	// GaveUp: it returned any other error, such as the context's end.
	GaveUp Kind = "gave_up"
	// Acted: the lease was looked at, is held, and an act is being sent.
	Acted Kind = "acted"
	// Renewed: the lease's Until has moved on to this Until.
	Renewed Kind = "renewed"
	// ToldLost: the holder knows that it is a holder no more, without having asked.
	ToldLost Kind = "told_lost"
	// UnlockBegin: before Unlock is called: the holder does not act from here on.
	UnlockBegin Kind = "unlock_begin"
	// Unlocked: Unlock has returned. Error is its answer, if it is one.
	Unlocked Kind = "unlocked"
)

// What the parent writes.
const (
	// TrialBegin: Fault is what is going to be done ("" if nothing), Value the
	// leases' TTL in nanoseconds.
	TrialBegin Kind = "trial_begin"
	// TrialEnd: all calls had the time to return. Error says why the trial must
	// not be counted, if it must not.
	TrialEnd Kind = "trial_end"
	// Landed: an act arrived at the recorder: Process, Caller, Name, Token and
	// Seq are the act's.
	Landed Kind = "landed"
	// FaultBegin: before a fault begins, for all locks of the trial. Process is the child that it is
	// for, "" if it is for servers. Value is how many servers it takes away.
	FaultBegin Kind = "fault_begin"
	// Evidence: the fault was seen to have its effect; Detail says by what.
	Evidence Kind = "evidence"
	// FaultEnd: the fault is healed. Detail says if it could not be.
	FaultEnd Kind = "fault_end"
	// Stall: the machine did not let a heartbeat run for Value nanoseconds
	// before At. Process is the child whose heartbeat it was, "" for the
	// parent's, which counts for all.
	Stall Kind = "stall"
	// Starved: a thread of one of the service's servers could have run and had no
	// processor for Value nanoseconds before At. Process is the server's number.
	Starved Kind = "starved"
)
