package cas

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/golockers/locker/driver"
)

// Store keeps small records, each under a key, and replaces one only if nobody has changed it
// meanwhile. It is for implementers; [New] makes a [driver.Backend] of it, and package castest
// tests it in seconds.
//
// Its methods may be called from many goroutines at once, and return soon after ctx has ended. ctx
// always ends: the Backend bounds each request ([Options].Timeout), so the Store needs no time-out
// of its own. It does not retry.
//
// A key is the name of a lock with the client's prefix: any valid UTF-8 of 1 to
// driver.MaxNameLen+driver.MaxPrefixLen bytes, case-sensitive. The Store encodes it so that no two
// keys meet, and none reaches anything that is not the Store's. Nobody else writes the records, and nobody
// deletes one: tokens begin at 1 again where a record is gone.
//
// An error of a Store that matches [driver.ErrRefused] says that the service refuses the client (wrong
// credentials, a missing right), and that trying again does not help. Every other error counts as
// [driver.ErrUnavailable], which it need not match by itself. What a Swap may have done is another question:
// only ErrConflict and ErrUnwritten answer it.
//
// A Store that implements [io.Closer] is closed with its Backend, once, when no request is under way.
type Store interface {
	// Load returns the record of key. A record that does not exist is no error: it has an empty Version.
	//
	// Load is fresh: it returns what the last Swap wrote that had returned before Load was called, or
	// something later. A Store that may for a while return what was before, as one whose deposed leader
	// answers, says so in RestsOn. Neither exclusion nor a release or take-back rests on this, since a
	// Swap under an old version fails; but a waiter learns of a release later, a holder may be told that it is
	// lost, and a Break may find nobody.
	Load(ctx context.Context, key string) (Entry, error)

	// Swap writes value, and nothing else, if the record still has that version ("": if it does not
	// exist), in one step that no other Swap comes between, and returns its new version. No two writes of
	// a key ever have the same version, also after the service has started anew. A version that is made of
	// the value, such as an ETag, will do: the Backend never writes the same value of a key twice.
	//
	// Two errors tell what became of the write; a Store returns them only if it is certain:
	//
	//   - ErrConflict: the record has another version, or exists although version is "", or does not
	//     exist although it is not. This call has written nothing, and nothing of it can arrive later.
	//     A driver that repeats a request whose reply was lost cannot say so of the second copy: its
	//     conflict may be with the first.
	//   - ErrUnwritten: the service has refused or never received the request, so that nothing was
	//     written and nothing can arrive later. It is an outage or a refusal (ErrRefused) besides.
	//
	// With every other error it is not known: the write may have happened, may not have, or may happen
	// long after Swap has returned.
	Swap(ctx context.Context, key, version string, value []byte) (newVersion string, err error)

	// List yields the keys that begin with prefix and have a record, each once, in no order. A key that is
	// written while List runs may be left out. An error is the last that it yields.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Promises says what the Store can do, always the same. It does no I/O.
	Promises() Promises
}

// Entry is a record as a [Store] has read it.
type Entry struct {
	Value   []byte
	Version string // "": there is no record
	// Age is for how long the record has had this version at least, when the service answered: the
	// difference of two times of the service's own clock, and of none of a client. 0 if it is not known,
	// or the clock has gone back; less than it is, where the service rounds.
	Age time.Duration
}

// Promises are what a [Store] can do and its service promises. The [driver.Guarantees] of a Backend
// over it follow from them. The zero value of each field promises nothing.
type Promises struct {
	// Backend, Scope, Exclusion, Fencing, ServerCrashes, SurvivesRestart, SurvivesFailover and RestsOn are
	// those of [driver.Guarantees]. Fencing is how long a record lasts, in which the tokens are counted. RestsOn
	// is about the service alone; the Backend adds the conditions of its own.
	Backend          string
	Scope            driver.Scope
	Exclusion        driver.Exclusion
	Fencing          driver.Fencing
	ServerCrashes    int
	SurvivesRestart  bool
	SurvivesFailover bool
	RestsOn          string

	// Ages: Load knows the Age of every record. A dead holder's lock is then free when its TTL has
	// passed, also for a process that has only just begun to look, and MinHold is possible; but a step
	// forward of the service's clock can give a lock to a second holder.
	Ages bool

	// MinTTL is the shortest TTL that makes sense: with slow writes, or where each renewal costs others
	// something. 0: 50 ms.
	MinTTL time.Duration

	// MaxValue is how many bytes a record may have, 4096 at least; 0: as many as there can be (400,000).
	// It bounds how many can share a name.
	MaxValue int
}

// The two answers of [Store.Swap] that are certain.
var (
	ErrConflict  = errors.New("the record has another version")
	ErrUnwritten = errors.New("nothing was written")
)

// Watcher is implemented by a [Store] that can tell of changes. It makes waiting prompt;
// neither correctness nor progress rests on it.
type Watcher interface {
	// Watch calls changed whenever the record of key may have changed, until stop is called. It returns when
	// every later change will be told of. changed does not block; the Watcher calls it also when it may
	// have missed a change, and may call it when nothing has happened. ctx bounds Watch alone; stop does
	// not wait for the service.
	Watch(ctx context.Context, key string, changed func()) (stop func(), err error)
}
