package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// fault is a fault of a client's connection.
type fault string

const (
	noFault   fault = ""
	held      fault = "requests are delivered late"
	lost      fault = "requests are lost"
	replyLost fault = "replies are lost"
	replyLate fault = "replies are late"
	reset     fault = "connections are reset"
	heldOpen  fault = "requests are overtaken"
	silent    fault = "nothing gets through"
)

const mended = "all is well"

var faults = []fault{held, lost, replyLost, replyLate, reset, heldOpen, silent}

// set breaks a connection in that way, or restores it.
func (f fault) set(line Fault) {
	modes := map[fault][2]Mode{noFault: {Pass, Pass}, held: {Hold, Pass}, lost: {Drop, Pass}, heldOpen: {HoldOpen, Pass},
		replyLost: {Pass, Drop}, replyLate: {Pass, Hold}, reset: {Reset, Reset}, silent: {Drop, Drop}}[f]
	line.Requests(modes[0])
	line.Replies(modes[1])
}

// mutes reports whether no call can be answered meanwhile.
func (f fault) mutes() bool { return f != noFault && f != heldOpen }

// delays reports whether requests are delivered after the fault.
func (f fault) delays() bool { return f == held || f == heldOpen }

// verb is what a step of a script does.
type verb string

const (
	doAcquire verb = "acquire"
	doAgain   verb = "ask again" // with the same owner, as a driver may
	doWait    verb = "wait"
	doRenew   verb = "renew"
	doTwice   verb = "renew twice at once"
	doRelease verb = "release"
	doUndo    verb = "undo"
	doPass    verb = "pass"
	doRaise   verb = "raise"
	doInspect verb = "inspect"
	doList    verb = "list"
	doBreak   verb = "break"       // the holder that the last Inspect has seen
	doDelete  verb = "delete"      // behind the backend's back
	doListen  verb = "listen"      // until doStop
	doStop    verb = "stop"        // listening
	doFault   verb = "fault"       // noFault: it is restored
	doCancel  verb = "cancel"      // all calls of the client
	doClose   verb = "close"       // the client
	doPause   verb = "pause"       // all clients
	doServers verb = "servers"     // a server event
	doFinish  verb = "be answered" // the client's calls
)

// limit is the context of a call.
type limit string

const (
	whole  limit = ""          // it is patient
	brief  limit = "briefly"   // for a fraction of the TTL
	middle limit = "cancelled" // some time while it is in flight
	beyond limit = "under a context that is over"
	never  limit = "under a context that never ends"
)

// server is a server event.
type server string

const (
	byRestart  server = "restarted"
	byFailover server = "failed over"
	byCrash    server = "some are down"
	byHang     server = "some stand still"
	byJump     server = "clocks an hour ahead"
	byJumpBack server = "clocks an hour back"
)

// takesSome reports whether some of the servers stop answering.
func (s server) takesSome() bool { return s == byCrash || s == byHang }

// step is one line of a script.
type step struct {
	do     verb
	who    int // which client
	name   int // which of the names
	shared bool
	yield  bool          // of Pass; for doAgain: ask in the other kind; for Release: MinHold does not keep it
	old    int           // how many of the client's attempts to skip, from the latest back
	ttl    time.Duration // of Acquire and Pass; the length of a pause; what RaiseToken adds
	min    time.Duration // MinHold
	limit  limit
	fault  fault
	server server
	label  string
}

// letters are the names of clients in reports. The last one tries at the end.
const letters = "abcdefgz"

const prober = len(letters) - 1

func (s step) String() string {
	who := letters[s.who : s.who+1]
	switch s.do {
	case doPause:
		return fmt.Sprintf("pause %v", s.ttl)
	case doServers:
		return fmt.Sprintf("servers: %s", s.server)
	case doFault:
		if s.fault == noFault {
			return who + ": " + mended
		}
		return fmt.Sprintf("%s: %s", who, s.fault)
	case doCancel, doClose, doFinish:
		return fmt.Sprintf("%s %s", who, s.do)
	}
	text, ttl := fmt.Sprintf("%s %s %d", who, s.do, s.name), s.ttl.String()
	if s.do == doRaise {
		ttl = fmt.Sprintf("by %d", s.ttl)
	}
	for _, more := range []struct {
		is   bool
		text string
	}{
		{s.shared, "shared"}, {s.yield, "yielding"}, {s.old > 0, fmt.Sprintf("before %d", s.old)},
		{s.ttl != 0, ttl}, {s.min > 0, "MinHold " + s.min.String()},
		{s.label != "", fmt.Sprintf("label %d", slices.Index(labels, s.label))}, {s.limit != whole, string(s.limit)},
	} {
		if more.is {
			text += " " + more.text
		}
	}
	return text
}

// script is the steps of several clients.
type script struct {
	seed  uint64
	what  string // what it is about
	names []string
	off   bool // the clocks of two of its clients are wrong
	plain bool // its names and clients are not special
	some  bool // faults concern connections to some of the servers
	event server
	steps []step
}

// String writes the steps on a few lines.
func (s script) String() string {
	var b strings.Builder
	width := 0
	for i, st := range s.steps {
		text := st.String()
		if i > 0 {
			b.WriteString("; ")
			if width+len(text) > 90 {
				b.WriteString("\n      ")
				width = 0
			}
		}
		b.WriteString(text)
		width += len(text) + 2
	}
	return b.String()
}
