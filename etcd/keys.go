package etcd

import (
	"fmt"
	"strings"
)

// keys makes etcd keys of names. The layout is part of what two releases of
// this package have to agree on: base ends in its version.
type keys struct{ base string }

// locksPart is what stands between a prefix and the names. A prefix that has it
// too would put its keys into a queue of a shorter one. Without it in either,
// no prefix's keys are among another's.
const locksPart = "/1/lock/"

// checkPrefix reports a prefix that is in the way of another.
func checkPrefix(prefix string) error {
	if strings.Contains(prefix+"/", locksPart) {
		return fmt.Errorf("Options.Prefix is %q: its keys would stand among the locks of the prefix before %s: write it without that",
			prefix, strings.TrimSuffix(locksPart, "/"))
	}
	return nil
}

// queue is what all keys of a name begin with. No name reaches into another's:
// the slash behind it is the only one that is not escaped (R18).
func (k keys) queue(name string) string { return k.base + "lock/" + escape.Replace(name) + "/" }

// places is the end of the range that begins with a queue and has the keys of
// who holds or waits in it, and not the void ones.
func places(queue string) string { return queue + voidMark }

// void is the key that, if it is there, makes the acquire with that mark do
// nothing. It is among the keys of its queue, so that one look at them says
// that the queue is empty and nothing is void.
func void(queue, mark string) string { return queue + voidMark + escape.Replace(mark) }

// voidMark sorts behind the hexadecimal digits that keys of sessions begin with.
const voidMark = "~"

// pulse is a key that never is: reading it is how a majority is asked.
func (k keys) pulse() string { return k.base + "lock/" }

var escape = strings.NewReplacer("%", "%25", "/", "%2F")
