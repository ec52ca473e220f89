package redisnode

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
)

//go:embed *.lua
var files embed.FS

// Text puts the parts of a script behind what all scripts have in common: files, and lines that are given. It is
// called once for each script of the program.
func Text(from embed.FS, parts ...string) string {
	all := []string{read(files, "prelude.lua")}
	for _, part := range parts {
		if strings.HasSuffix(part, ".lua") {
			part = read(from, part)
		}
		all = append(all, part)
	}
	return strings.Join(all, "\n")
}

func read(from embed.FS, name string) string {
	text, err := from.ReadFile(name)
	if err != nil {
		panic(err) // the program was built without it
	}
	return string(text)
}

// Script is a Lua script that one call runs for several locks, each for itself (prelude.lua). To start a script
// costs the server more than all it does for a lock: of 64 that go together each costs half.
type Script struct {
	text string // without what binds it to a run
	run  string
	sha  any // an interface, so that a command's arguments allocate nothing
	keys int // that each lock has
	arg  any // the argument that all share
	// anywhere: another run of the server than the one that it was first sent to may carry it out, too.
	anywhere bool
	// strict: a server that does not know the script is not given its text, and NOSCRIPT is the caller's to see.
	strict bool
	forOne bool // a call is for one lock
}

// NewScript returns a script with so many keys for each lock, and an argument that is always the same.
func NewScript(keys int, arg any, text string) *Script {
	s := &Script{text: text, keys: keys, arg: arg}
	return s.named()
}

func (s *Script) named() *Script {
	sum := sha1.Sum([]byte(s.Text())) // it is how Redis names scripts
	s.sha = hex.EncodeToString(sum[:])
	return s
}

// ForOne returns s, whose text is for one lock.
func (s *Script) ForOne() *Script {
	s.forOne = true
	return s
}

// Anywhere returns s, which does no harm when two runs of a server carry out one request: a renewal, a question.
func (s *Script) Anywhere() *Script {
	s.anywhere = true
	return s
}

// Strict returns s bound to a run of a server: who gives the text to that run alone knows that no other carries it
// out. "" is for any run.
func (s *Script) Strict(run string) *Script {
	bound := s.bound(run)
	bound.strict = run != ""
	return bound
}

func (s *Script) bound(run string) *Script {
	bound := *s
	bound.run = run
	return bound.named()
}

// Text returns the script as a server gets it. The first line binds it to a run: others do not know the script by
// its name, and a server keeps none over a restart.
func (s *Script) Text() string {
	if s.run == "" {
		return s.text
	}
	return "-- for " + s.run + "\n" + s.text
}

// run is one run of a server, and the scripts that are bound to it. nil, or one without an id: it is not known.
type run struct {
	id  string
	met time.Time

	mu      sync.Mutex
	scripts map[*Script]*Script
}

// of is s for this run.
func (r *run) of(s *Script) *Script {
	if r == nil || r.id == "" || s.anywhere || s.strict {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	bound := r.scripts[s]
	if bound == nil {
		bound = s.bound(r.id)
		r.scripts[s] = bound
	}
	return bound
}

// Attempt is one request: a script for one lock. It belongs to its maker until it is started, then to its lane
// until it is over, and then to its maker again.
type Attempt struct {
	Op   string // for errors: "acquire", "renew", …
	Name string // the lock's name, which decides the shard of a Cluster

	// Undo is that of the hold which the attempt asks the server to keep for Lasts, or nil. It is told of
	// each copy from when that may be sent until the driver is done with it.
	Undo  *driver.Undo
	Lasts time.Duration
	// Limit is how long the answer is waited for once it was sent; 0, or more: the timeout of the Node.
	Limit time.Duration

	script *Script
	first  any            // the key that all attempts which go together have in common; nil: there is none
	slot   uint16         // of a Cluster, where only those of one slot go together
	own    []any          // the lock's own keys and arguments
	room   [7]any         // for own
	told   func(*Attempt) // nil: done is signalled
	done   chan struct{}  // of capacity 1

	stage  stage // guarded by the lane's mutex, as is the next
	sentAt time.Time
	Outcome
}

// stage is the life of an attempt:
//
//	made -> queued -> flying -> over
//	            \--------\----> left, by its caller
type stage uint8

const (
	made stage = iota
	queued
	flying
	over
	left
)

// Outcome is what became of an attempt.
type Outcome struct {
	Answer Answer
	Err    *Error    // why there is no answer
	Since  time.Time // from before the first copy was given to the driver (R1); zero: none was
	Copies int       // how many were. Of several, the answer is one's, and another may still arrive (R7).
}

// Attempt returns a request for one lock: its keys, and then its arguments.
func (s *Script) Attempt(op, name string, first any, own ...any) *Attempt {
	a := attempts.Get().(*Attempt)
	a.Op, a.Name, a.script, a.first = op, name, s, first
	a.own = append(a.room[:0], own...)
	return a
}

// Storing marks an attempt that may store a hold, or keep it for so long.
func (a *Attempt) Storing(u *driver.Undo, lasts time.Duration) *Attempt {
	a.Undo, a.Lasts = u, lasts
	return a
}

// attempts are used again, for their channels' sake. One that was left, has failed or was sent more than once
// is not: the driver may still be at work for it.
var attempts = sync.Pool{New: func() any { return &Attempt{done: make(chan struct{}, 1)} }}

// recycle takes back an attempt that is over, from its maker.
func (a *Attempt) recycle() {
	if a.Copies == 1 && a.Err == nil {
		*a = Attempt{done: a.done}
		attempts.Put(a)
	}
}

// sends notes that an attempt may be sent from now on.
func (a *Attempt) sends() {
	if a.Undo != nil {
		a.Undo.Sends(a.Lasts)
	}
}

// through notes that it is not sent any more. What arrives late all the same finds its value void.
func (a *Attempt) through() {
	if a.Undo != nil {
		a.Undo.Sent(false)
	}
}

// tell hands an attempt that is over back to its maker.
func (a *Attempt) tell() {
	if a.told != nil {
		a.told(a)
		return
	}
	a.done <- struct{}{}
}

// Answer is what a script says to one lock.
type Answer struct {
	Code  Code
	N     int64 // the token, or 1, or a number that explains the code
	Text  string
	Parts []any // of inspections, which have no code
}

// Code is the kind of an answer. The numbers are those of prelude.lua.
type Code int64

// The codes.
const (
	Done      Code = iota // granted with token N, or done as asked
	Again                 // granted before to this same value, with token N (R11)
	Held                  // another has it for N ms; negative: it has no expiry
	Void                  // the value was taken back
	Foreign               // the key is there and is no lock
	Gone                  // there is no such lock
	Theirs                // it is another's
	Turn                  // released: it is another client's turn
	Sharers               // sharers have it for N ms, and a writer that waits has left its note
	Full                  // N share it, and no more can
	Overtaken             // another holder's token has reached this one's, whatever the key says
)

// inspected is how many parts an inspection has.
const inspected = 7

// readAnswer reads one answer strictly: what no script gives is an error. Which of these a script of its own gives
// is for its caller to know.
func readAnswer(reply any) (a Answer, err error) {
	if n, ok := reply.(int64); ok && n > 0 {
		return Answer{N: n}, nil
	}
	v, _ := reply.([]any)
	switch len(v) {
	case inspected:
		return Answer{Parts: v}, nil
	case 2, 3:
		code, ok1 := v[0].(int64)
		n, ok2 := v[1].(int64)
		text, ok3 := v[len(v)-1].(string)
		switch {
		case ok1 && code == -1 && ok3 && len(v) == 2:
			return a, scriptError(text)
		case ok1 && ok2 && code > 0 && code <= int64(Overtaken) && (len(v) == 2 || ok3):
			return Answer{Code: Code(code), N: n, Text: text}, nil
		}
	}
	return a, unexpected(reply)
}

// scriptError is an error that the server gave for one lock of several. It is a redis.Error.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError marks it as the server's.
func (scriptError) RedisError() {}

// maxShare bounds how many locks one script call is for: the server does nothing else meanwhile, some 4 µs for each.
const maxShare = 96

// call is one script call, and the replies that it is for.
type call struct {
	*redis.Cmd
	replies []*reply
}

// NoRetry makes the driver send it once: with a copy that nobody knows of, a refusal could come from the second
// while the first was granted.
func (call) NoRetry() bool { return true }

// reply is what one copy of an attempt has brought.
type reply struct {
	attempt *Attempt
	answer  Answer
	cause   error
	copies  int  // beyond the first
	silent  bool // nothing is known: another copy may bring an answer
}

// how a copy is sent.
type how struct {
	run    *run // whose scripts they are
	inFull bool // with the script's text, which makes the server remember it
	apart  bool // each by itself, since one of those that went together may be what was refused
}

// bundle puts those of one script, and one common key, into as few calls as may be.
func bundle(calls []call, replies []*reply, h how) []call {
	if len(replies) == 1 || h.apart {
		for i := range replies {
			calls = append(calls, newCall(replies[i:i+1], h))
		}
		return calls
	}
	type group struct {
		script *Script
		first  any
		slot   uint16
		of     []*reply
	}
	var groups []group
	for _, r := range replies {
		a, at := r.attempt, -1
		for i := range groups {
			g := &groups[i]
			if !a.script.forOne && g.script == a.script && g.first == a.first && g.slot == a.slot && len(g.of) < maxShare {
				at = i
			}
		}
		if at < 0 {
			at = len(groups)
			groups = append(groups, group{a.script, a.first, a.slot, make([]*reply, 0, min(len(replies), maxShare))})
		}
		groups[at].of = append(groups[at].of, r)
	}
	for _, g := range groups {
		calls = append(calls, newCall(g.of, h))
	}
	return calls
}

var evalsha, eval any = "evalsha", "eval"

// firstKey is where the keys begin in a command: behind its name, the script and the number of keys.
const firstKey = 3

// newCall makes one command: the common key, the keys of each lock, the common argument, the arguments of each.
func newCall(of []*reply, h how) call {
	a := of[0].attempt
	s, n := h.run.of(a.script), len(of)
	line := make([]any, firstKey, firstKey+2+n*len(a.own))
	line[0], line[1], line[2] = evalsha, s.sha, n*s.keys
	if h.inFull && !s.strict {
		line[0], line[1] = eval, s.Text()
	}
	if a.first != nil {
		line[2] = n*s.keys + 1
		line = append(line, a.first)
	}
	for _, r := range of {
		line = append(line, r.attempt.own[:s.keys]...)
	}
	line = append(line, s.arg)
	for _, r := range of {
		line = append(line, r.attempt.own[s.keys:]...)
	}
	cmd := redis.NewCmd(context.Background(), line...)
	cmd.SetFirstKeyPos(firstKey) // the Cluster's client need not ask the server for it
	return call{cmd, of}
}

// read hands the answers of a call to its replies.
func (c call) read() {
	err := c.Err()
	answers, ok := c.Val().([]any)
	if err == nil && (!ok || len(answers) != len(c.replies)) {
		err = unexpected(c.Val())
	}
	for i, r := range c.replies {
		if r.cause = err; err == nil {
			r.answer, r.cause = readAnswer(answers[i])
		}
	}
}

// Milliseconds rounds up: a lock that the server keeps a little longer than its holder believes is safe.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// unexpected is the error for a reply that no script gives: of another program at the server's address, or of a proxy
// between.
func unexpected(reply any) error {
	text := fmt.Sprint(reply)
	return unexpectedError(text[:min(len(text), 200)])
}

type unexpectedError string

func (e unexpectedError) Error() string {
	return "a reply that this script does not give: " + string(e)
}
