package cas

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/golockers/locker/driver"
)

// Store keeps small records, each under a key, and replaces one only if nobody has changed it
// meanwhile. It is for implementers; [New] turns it into a [driver.Backend], and package castest tests
// it in seconds.
//
// Its methods may be called from many goroutines at once, and return soon after ctx has ended. The
// Backend bounds each request ([Options].Timeout), so ctx always ends, and the Store needs no timeout
// of its own. It does not retry.
//
// A key is the name of a lock with the client's prefix: any valid UTF-8 of 1 to
// driver.MaxNameLen+driver.MaxPrefixLen bytes, case-sensitive. The Store encodes it so that no two keys
// collide, and none reaches anything that is not the Store's. Nobody else may write or delete records:
// after a deletion, tokens start at 1 again.
//
// An error of a Store that matches [driver.ErrRefused] says that the service refuses the client (wrong
// credentials, a missing permission), and that trying again does not help. Every other error counts as
// [driver.ErrUnavailable], which it need not match. What a failed Swap may have done is a separate
// question: only ErrConflict and ErrUnwritten answer it.
//
// A Store that implements [io.Closer] is closed with its Backend, once, when no request is in flight.
type Store interface {
	// Load returns the record of key. A record that does not exist is no error: it has an empty Version.
	//
	// Load is fresh: it returns what the last Swap that returned before the call has written, or
	// something later. A Store that may return older data for a while, as when a deposed leader
	// answers, says so in RestsOn. Neither exclusion nor a release or take-back depends on this,
	// because a Swap under an old version fails. But a waiter may learn late of a release, a holder may
	// be told that its lock is lost, and a Break may find nobody.
	Load(ctx context.Context, key string) (Entry, error)

	// Swap writes value, and nothing else, if the record still has that version ("": if it does not
	// exist), in one step that is atomic with respect to every other Swap, and returns its new version.
	// No two writes of a key ever have the same version, even after a restart of the service. A version
	// derived from the value, such as an ETag, will do: the Backend never writes the same value of a
	// key twice.
	//
	// Two errors say what became of the write. A Store returns them only if it is certain:
	//
	//   - ErrConflict: the record has another version, or exists although version is "", or does not
	//     exist although version is not "". This call has written nothing, and nothing of it can arrive
	//     later. After a driver has repeated a request whose reply was lost, a conflict of the second
	//     copy does not show this: it may be a conflict with the first.
	//   - ErrUnwritten: the service has refused or never received the request, so that nothing was
	//     written and nothing can arrive later. The error is also an outage or a refusal (ErrRefused).
	//
	// After any other error the outcome is unknown: the write may have happened or not, or may happen
	// long after Swap has returned.
	Swap(ctx context.Context, key, version string, value []byte) (newVersion string, err error)

	// List yields the keys that begin with prefix and have a record, each once, in no particular order.
	// A key that is written while List runs may be left out. An error is yielded last.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Promises says what the Store can do. It never changes. It does no I/O.
	Promises() Promises
}

// Entry is a record as read from a [Store].
type Entry struct {
	Value   []byte
	Version string // "": there is no record
	// Age is for how long, at least, the record had had this version when the service answered: the
	// difference of two times of the service's own clock, not of a client's. 0 if it is unknown, or the
	// clock has gone back; if the service rounds, it is too low, never too high.
	Age time.Duration
}

// Promises are what a [Store] can do and what its service promises. The [driver.Guarantees] of its
// Backend follow from them. The zero value of each field promises nothing.
type Promises struct {
	// Backend, Scope, Exclusion, Fencing, ServerCrashes, SurvivesRestart, SurvivesFailover and RestsOn
	// are those of [driver.Guarantees]. Fencing says how long a record, which counts the tokens, is
	// kept. RestsOn is about the service alone; the Backend adds its own conditions.
	Backend          string
	Scope            driver.Scope
	Exclusion        driver.Exclusion
	Fencing          driver.Fencing
	ServerCrashes    int
	SurvivesRestart  bool
	SurvivesFailover bool
	RestsOn          string

	// Ages: Load knows the Age of every record. A dead holder's lock is then free when its TTL has
	// passed, even for a process that has only just started, and MinHold is possible; but a step
	// forward of the service's clock can give a lock to a second holder.
	Ages bool

	// MinTTL is the shortest sensible TTL: longer if writes are slow, or if each renewal costs others
	// something. 0: 50 ms.
	MinTTL time.Duration

	// MaxValue is how many bytes a record may have, at least 4096; 0: the most that are needed
	// (400,000). It bounds the number of sharers of a name.
	MaxValue int
}

// The two certain answers of [Store.Swap].
var (
	ErrConflict  = errors.New("the record has another version")
	ErrUnwritten = errors.New("nothing was written")
)

// Watcher is implemented by a [Store] that can report changes. It makes waiting prompt; neither
// correctness nor progress depends on it.
type Watcher interface {
	// Watch calls changed whenever the record of key may have changed, until stop is called. It returns
	// when every later change will be reported. changed does not block. The Watcher also calls it when
	// it may have missed a change, and may call it without a cause. ctx bounds Watch alone; stop does
	// not wait for the service.
	Watch(ctx context.Context, key string, changed func()) (stop func(), err error)
}
