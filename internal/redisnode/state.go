package redisnode

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
)

var (
	releaseText, undoText   = Text(files, "release.lua"), Text(files, "undo.lua")
	retainText, inspectText = Text(files, "retain.lua"), Text(files, "inspect.lua")
)

// Release makes the attempt that removes the lock if it has the value, and wakes those who wait for it. void > 0
// leaves a note for so long, so that an acquire with this value that is still under way is refused when it
// arrives (R7).
func (n *Node) Release(k *Keys, void time.Duration) *Attempt {
	if void > 0 {
		return n.undo.Attempt("take back", k.Name, nil, k.Lock, k.Wait(), k.Void(), k.Value(), Milliseconds(void))
	}
	return n.release.Attempt("release", k.Name, nil, k.Lock, k.Wait(), k.Value())
}

// Retain is Release for a lock that is to be kept, for so long from when the server carries it out.
func (n *Node) Retain(k *Keys, keep, void time.Duration, u *driver.Undo) *Attempt {
	return n.retain.Attempt("release", k.Name, nil, k.Lock, k.Wait(), k.Void(), k.Value(), Milliseconds(keep),
		Milliseconds(void)).Storing(u, keep)
}

// Inspect makes the attempt that reads the state of a lock, with the token of a counter, and changes nothing.
func (n *Node) Inspect(k *Keys, counter any) *Attempt {
	return n.inspect.Attempt("inspect", k.Name, nil, k.Lock, counter, k.Wait(), k.Sharers())
}

// Kept stands behind the owner value of one who has released a lock that is kept.
const Kept = "\nkept"

// Status is what a server knows of a lock.
type Status struct {
	Name string
	Value
	Held    bool          // somebody has it, or it is kept for one who has released it
	Text    string        // what stands in its key
	Left    time.Duration // the rest of its TTL, or of its last sharer's; negative: it never expires
	Foreign bool          // the key is there but is no lock (not a string)
	Counter string        // what the counter's key has
	Waited  bool          // somebody waits, and will be woken by the release
	Sharers int
	Some    []string // the owner values of some sharers
}

// StatusOf reads the answer to Inspect.
func (n *Node) StatusOf(name string, o Outcome) (s Status, err error) {
	s.Name = name
	if o.Err != nil {
		return s, o.Err
	}
	v := o.Answer.Parts
	if len(v) != inspected {
		return s, n.Unexpected("inspect", o.Answer)
	}
	left, ok1 := v[1].(int64)
	waited, ok2 := v[3].(int64)
	many, ok3 := v[4].(int64)
	last, ok4 := v[5].(int64)
	some, ok5 := v[6].([]any)
	text, there := v[0].(string)
	if !(ok1 && ok2 && ok3 && ok4 && ok5) || !there && v[0] != nil || left < NoKey || waited < 0 || waited > 1 ||
		many < int64(len(some)) || (many > 0) != (len(some) > 0) {
		return s, n.Unexpected("inspect", o.Answer)
	}
	s.Text, s.Foreign, s.Waited = text, !there && left != NoKey, waited == 1
	s.Counter, _ = v[2].(string)
	s.Value = ReadValue(text)
	switch {
	case s.Shared:
		s.Held, s.Sharers, s.Left = many > 0, int(many), LeftOf(last)
		for _, owner := range some {
			text, _ := owner.(string)
			s.Some = append(s.Some, strings.TrimSuffix(text, Kept))
		}
	case s.Turn != "":
		s.Waited = true
	case there, s.Foreign:
		s.Held, s.Left = there, LeftOf(left)
	}
	return s, nil
}

// NoKey is what PTTL answers for a key that is not there. -1 is for one that never expires.
const NoKey = -2

// LeftOf is the rest of a TTL that a script answered. In its last millisecond that is 0, and must not look like a
// time that is not known: a waiter would wait for a message that nobody sends.
func LeftOf(ms int64) time.Duration {
	if ms == 0 {
		ms = 1
	}
	return time.Duration(ms) * time.Millisecond
}

// Value is what stands in a lock's key, read: see prelude.lua.
type Value struct {
	Digits uint64 // the token, or in package redlock the time of the request in µs; 0: not known
	Owner  string // the owner value that has the lock; "": nobody has it
	Kept   bool   // the owner has released it, and a MinHold keeps it
	Turn   string // nobody has it, and it is kept for the next attempt of this client
	Shared bool   // those have it, if any, who stand beside it, all with this token
}

// digits is how long a number is in a value, so that the owner begins at one place.
const digits = 16

// Digits writes a number as it stands in a lock's key.
func Digits(n uint64) string {
	text := strconv.FormatUint(n, 10)
	return strings.Repeat("0", max(0, digits-len(text))) + text
}

// ReadValue reads a lock's value.
func ReadValue(text string) (v Value) {
	text, v.Kept = strings.CutSuffix(text, Kept)
	first, rest, _ := strings.Cut(text, " ")
	n, err := strconv.ParseUint(first, 10, 64)
	switch {
	case first == "turn":
		v.Turn = rest
	case first == "shared":
		first, _, _ = strings.Cut(rest, " ")
		v.Digits, _ = strconv.ParseUint(first, 10, 64)
		v.Shared = true
	case len(first) == digits && err == nil:
		v.Digits, v.Owner = n, rest
	default:
		v.Owner = text // another program wrote it
	}
	return v
}

// Since is the time that a number of µs in a value tells; zero: it tells none, since the clock was set back or
// tokens were raised above it.
func Since(µs uint64) time.Time {
	if since := time.UnixMicro(int64(µs)); µs > 0 && time.Until(since) < time.Minute {
		return since
	}
	return time.Time{}
}

// ForeignError is a key in the way that is no lock.
type ForeignError struct{ addr, key string }

// Foreign is the error for the key of this name.
func (n *Node) Foreign(name string) *ForeignError { return &ForeignError{n.Addr, LockKey(name)} }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("redis %s: the key %q is in the way and is no lock: delete it, or use another prefix", e.addr, e.key)
}

// Unexpected is the error for an answer that a script does not give.
func (n *Node) Unexpected(op string, answer Answer) *Error {
	return Failed(op, n.Addr, unexpected(answer))
}

// inspections is how many locks of a list are inspected at the same time.
const inspections = 32

// Each inspects locks, several at the same time, and yields what it finds in the order of the names.
func Each[T any](
	ctx context.Context, names []string, inspect func(ctx context.Context, name string) (T, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type found struct {
			what T
			err  error
		}
		for some := range slices.Chunk(names, inspections) {
			all := make([]found, len(some))
			var asked sync.WaitGroup
			for i, name := range some {
				asked.Go(func() { all[i].what, all[i].err = inspect(ctx, name) })
			}
			asked.Wait()
			for _, f := range all {
				if !yield(f.what, f.err) || f.err != nil {
					return
				}
			}
		}
	}
}
