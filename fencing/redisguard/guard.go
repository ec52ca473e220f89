package redisguard

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/fencing"
)

// Client is the part of a go-redis client that a Guard needs. A *redis.Client (of one
// server, or behind Sentinels), a *redis.ClusterClient and every redis.UniversalClient
// have it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Options are the settings of a [Guard]. The zero value, or nil, means the
// defaults.
type Options struct {
	// Prefix is the beginning of the keys of all marks. Guards with the same prefix
	// share their marks. It must not contain any of {}=%. "": fencing.
	Prefix string

	// Keep is how long a mark is remembered after the last accepted write. When it
	// is gone, a token of any age passes: choose a time longer than any holder can
	// be paused, and at least a second. 0: DefaultKeep.
	Keep time.Duration

	_ struct{}
}

// DefaultKeep is the default of Options.Keep.
const DefaultKeep = 30 * 24 * time.Hour

// Guard lets writes to a Redis happen only if no higher token was accepted for their
// resource. Make it with [New]. Its methods may be called from many goroutines at
// once. A Guard need not be closed: it has no goroutines and no connections of its
// own.
type Guard struct {
	client    Client
	clustered bool
	base      string       // the beginning of the keys of marks
	keep      string       // Options.Keep for the prelude, in ms
	answered  atomic.Int64 // when a request was answered last, as a time.Duration after began
}

// New returns a Guard on client, which the caller still owns. New does no I/O. Its
// error matches [locker.ErrInvalid].
func New(client Client, opts *Options) (*Guard, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	prefix, keep := cmp.Or(o.Prefix, defaultPrefix), cmp.Or(o.Keep, DefaultKeep)
	switch client.(type) {
	case nil:
		return nil, invalid("the client is nil")
	case redis.Pipeliner:
		return nil, invalid("the client is a pipeline, whose answers come later: give the client itself, or " +
			"put Prelude before a script of your own")
	case *redis.Ring:
		return nil, invalid("the client is a Ring, which asks another server when one does not answer: the " +
			"marks would not be there")
	}
	switch {
	case len(prefix) > maxPrefixLen:
		return nil, invalid("Options.Prefix has %d bytes: the limit is %d", len(prefix), maxPrefixLen)
	case strings.ContainsAny(prefix, "{}=%"):
		return nil, invalid("Options.Prefix is %q: write it without any of {}=%%, which have a meaning in the keys "+
			"of marks", prefix)
	case keep < time.Second:
		return nil, invalid("Options.Keep is %v: give at least a second", keep)
	}
	_, clustered := client.(*redis.ClusterClient)
	return &Guard{client: client, clustered: clustered, base: prefix + layout,
		keep: strconv.FormatInt(keep.Milliseconds(), 10)}, nil
}

// Raise moves the mark of resource up to token and writes nothing. After it has
// returned, no write with a lower token can happen. A holder calls it before it
// reads the state on which its write depends. If the connection is closed without an
// answer, Raise asks again. Errors are those of [Guard.Run].
func (g *Guard) Raise(ctx context.Context, resource string, token fencing.Token) error {
	return g.run(ctx, "raise the mark of", resource, token, raiseMark, true, nil, nil).Err()
}

var raiseMark = NewScript("return redis.status_reply('OK')")
