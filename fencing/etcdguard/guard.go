package etcdguard

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Options are the settings of a [Guard]. The zero value, or nil, means the defaults.
type Options struct {
	// Prefix is the beginning of all keys of the guard, without slashes at its ends.
	// Guards with the same prefix share their marks. "": fencing.
	Prefix string

	_ struct{}
}

// The bounds of Options.
const (
	defaultPrefix = "fencing"
	maxPrefixLen  = 256
)

// Guard lets transactions of an etcd happen only if no higher token was
// accepted for their resource. Make it with [New]. Its methods may be called
// from many goroutines at once. A Guard need not be closed: it has no goroutines.
type Guard struct {
	kv   clientv3.KV
	keys keys
}

// New returns a Guard on kv, which the caller still owns: a *clientv3.Client, or a
// KV that clientv3/namespace has made of one. New does no I/O. Its error matches
// [locker.ErrInvalid].
//
// Set DialKeepAliveTime and DialKeepAliveTimeout of the Client (10 s and 3 s).
// Otherwise only the kernel notices, after minutes, that the network has dropped a
// connection; until then each call lasts as long as its context.
func New(kv clientv3.KV, opts *Options) (*Guard, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	client, isClient := kv.(*clientv3.Client)
	switch {
	case kv == nil || isClient && (client == nil || client.KV == nil):
		return nil, invalid("the client is nil")
	case strings.Trim(o.Prefix, "/") != o.Prefix || strings.Contains(o.Prefix, "//"):
		return nil, invalid("Options.Prefix is %q: write it without slashes at its ends, and not two in a row",
			o.Prefix)
	case len(o.Prefix) > maxPrefixLen:
		return nil, invalid("Options.Prefix has %d bytes: the limit is %d", len(o.Prefix), maxPrefixLen)
	}
	return &Guard{kv: kv, keys: keys{base: o.Prefix + "/1/"}}, nil
}

// Mark returns the highest token that was accepted for resource; 0 if there is
// none.
func (g *Guard) Mark(ctx context.Context, resource string) (fencing.Token, error) {
	if err := fencing.CheckName(resource); err != nil {
		return 0, fmt.Errorf("etcdguard: %w", err)
	}
	var resp *clientv3.GetResponse
	key := g.keys.mark(resource)
	err := g.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = g.kv.Get(ctx, key)
		return err
	})
	switch {
	case err != nil:
		return 0, g.failure(ctx, resource, err)
	case len(resp.Kvs) == 0:
		return 0, nil
	}
	return parse(key, resp.Kvs[0].Value)
}

// Forget removes the mark of a resource that is no more. After that, a token of any
// age passes.
func (g *Guard) Forget(ctx context.Context, resource string) error {
	if err := fencing.CheckName(resource); err != nil {
		return fmt.Errorf("etcdguard: %w", err)
	}
	err := g.ask(ctx, func(ctx context.Context) error {
		_, err := g.kv.Delete(ctx, g.keys.mark(resource))
		return err
	})
	return g.failure(ctx, resource, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("etcdguard: %w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
