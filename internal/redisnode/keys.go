package redisnode

// LockKey returns the key that holds the owner value of a lock: locker:1:{name}, where 1 is the version of the layout.
//
// The braces make all keys of a lock one hash tag, so that they live on one shard of a Redis Cluster. In the name, the bytes '{', '}' and '%' are
// written %7B, %7D and %25, and the empty name is written %: no two names share a key, and no name can end the tag early.
func LockKey(name string) string { return "" }

// FenceKey returns the key of the fencing counter: locker:1:{name}:fence.
func FenceKey(name string) string { return "" }

// WaitKey returns the key that says that somebody waits: locker:1:{name}:wait.
func WaitKey(name string) string { return "" }

// VoidKey returns the key that says that value must not be granted any more: locker:1:{name}:void:value.
func VoidKey(name, value string) string { return "" }

// WakeChannel returns the channel on which a release is published: locker:1:{name}:wake.
func WakeChannel(name string) string { return "" }

// NameOf is the inverse of LockKey; ok is false where key is not a lock's.
func NameOf(key string) (name string, ok bool) { return "", false }
