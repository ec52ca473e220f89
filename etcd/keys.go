package etcd

import "strings"

// keys makes etcd keys of names. The layout is part of what two releases of
// this package have to agree on: base ends in its version.
type keys struct{ base string }

// queue is what all keys of a name begin with. No name reaches into another's:
// the slash behind it is the only one that is not escaped (R18).
func (k keys) queue(name string) string { return k.base + "lock/" + escape.Replace(name) + "/" }

// void is the key that, if it is there, makes the acquire with that mark do nothing.
func (k keys) void(mark string) string { return k.base + "void/" + escape.Replace(mark) }

// pulse is a key that never is: reading it is how a majority is asked.
func (k keys) pulse() string { return k.base + "lock/" }

var escape = strings.NewReplacer("%", "%25", "/", "%2F")
