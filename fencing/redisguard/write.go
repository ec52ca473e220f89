package redisguard

import (
	"context"
	"time"

	"github.com/golockers/locker/fencing"
)

// Set sets key to value if token is not lower than the mark of resource, and
// raises the mark to it; both happen, or neither. value is what go-redis
// encodes: text, bytes, numbers, an encoding.BinaryMarshaler. ttl is how long
// the key lives, rounded up to whole milliseconds; 0: until it is deleted,
// whatever TTL it had before.
//
// key has to share the hash slot of the mark, as on a Cluster keys that are
// written in one step have to: it has the same {tag} as resource, if that has
// one, or it is resource itself, or it has {resource} in it. Otherwise the
// error matches [locker.ErrInvalid] and says what to write; see
// [Options.Unclustered].
//
// A token that is too low is a [*fencing.StaleError], and no token matches
// [fencing.ErrMissing]; nothing is written. A Redis that cannot be reached, or
// cannot serve just now, matches [locker.ErrUnavailable]. Where an answer is lost,
// Set asks again, a few times at most. If it still does not know whether the write
// happened, or may yet happen, the error matches [fencing.ErrUnknown], and not
// ErrStale, even if a later holder has been there since: see "Lost answers" in the
// package comment. Wrong credentials and missing rights match neither.
//
// Set blocks as long as the client does. go-redis heeds the deadline of ctx in
// the middle of a request only if its ContextTimeoutEnabled is set, and its
// ReadTimeout otherwise.
func (g *Guard) Set(
	ctx context.Context, resource string, token fencing.Token, key string, value any, ttl time.Duration,
) error {
	args := []any{value}
	switch {
	case ttl < 0:
		return invalid("the TTL of %q is %v: give a positive one, or 0 for none", key, ttl)
	case ttl > 0:
		// Never rounded down to none (R16).
		ms := ttl.Milliseconds()
		if ttl%time.Millisecond != 0 {
			ms++
		}
		args = append(args, ms)
	}
	return g.run(ctx, "set a key of", resource, token, setKey, true, []string{key}, args...).Err()
}

// Del deletes keys if token is not lower than the mark of resource, and raises
// the mark to it. It returns how many were there; where the driver had to send
// the request twice, those that the first one deleted are not among them. The
// keys and the error are as those of [Guard.Set].
func (g *Guard) Del(
	ctx context.Context, resource string, token fencing.Token, keys ...string,
) (int64, error) {
	return g.run(ctx, "delete keys of", resource, token, delKeys, true, keys).Int64()
}

// Raise moves the mark of resource up to token and writes nothing. When it has
// returned, no write with a lower token can happen any more: a holder calls it
// before it reads what its write depends on. The error is as that of [Guard.Set].
func (g *Guard) Raise(ctx context.Context, resource string, token fencing.Token) error {
	return g.run(ctx, "raise the mark of", resource, token, raiseMark, true, nil).Err()
}

var (
	raiseMark = NewScript("return redis.status_reply('OK')")
	setKey    = NewScript(`
if ARGV[2] then
	return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return redis.call('SET', KEYS[1], ARGV[1])
`)
	delKeys = NewScript(`
local n = 0
for _, key in ipairs(KEYS) do
	n = n + redis.call('DEL', key)
end
return n
`)
)
