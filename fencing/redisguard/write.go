package redisguard

import (
	"context"
	"time"

	"github.com/golockers/locker/fencing"
)

// Set sets key to value if token is not lower than the mark of resource, and raises
// the mark to token; both happen, or neither. value may have any type that go-redis
// encodes: text, bytes, numbers, an encoding.BinaryMarshaler. ttl is how long the key
// lives, rounded up to whole milliseconds; 0: until it is deleted, whatever TTL it had
// before.
//
// key has to share the hash slot of the mark, since a Cluster writes only keys of one
// slot in one step: key has the same {tag} as resource, if that has one, or it is
// resource itself, or it contains {resource}. Otherwise the error matches
// [locker.ErrInvalid] and says how to name the key; see [Options.Unclustered].
//
// If the token is too low, the error is a [*fencing.StaleError]; without a token it
// matches [fencing.ErrMissing]. Nothing is written then. If the Redis cannot be
// reached, or cannot serve for the moment, the error matches [locker.ErrUnavailable].
// If an answer is lost, Set repeats the request a few times. If it still does not know
// whether the write happened, or will happen, the error matches [fencing.ErrUnknown],
// and not ErrStale, even if a later holder has written since: see "Lost answers" in
// the package comment. Wrong credentials and missing rights match neither.
//
// Set blocks as long as the client does. go-redis obeys the deadline of ctx during a
// request only if its ContextTimeoutEnabled is set, and otherwise its ReadTimeout.
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

// Del deletes keys if token is not lower than the mark of resource, and raises the
// mark to token. It returns the number of keys that existed. If it had to repeat the
// request, it does not count keys that the first request had deleted. The rules for
// keys, and the errors, are those of [Guard.Set].
func (g *Guard) Del(
	ctx context.Context, resource string, token fencing.Token, keys ...string,
) (int64, error) {
	return g.run(ctx, "delete keys of", resource, token, delKeys, true, keys).Int64()
}

// Raise moves the mark of resource up to token and writes nothing. After it has
// returned, no write with a lower token can happen. A holder calls it before it
// reads the state on which its write depends. Errors are those of [Guard.Set].
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
