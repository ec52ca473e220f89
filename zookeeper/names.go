package zookeeper

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

// beatMark begins the names of the sessions' own nodes. No lock's name is
// encoded to it: there, two hexadecimal digits follow each %.
const beatMark = "%beat-"

// newID returns 20 random bytes in hexadecimal digits: as long as an owner of
// the engine's, in place of which it stands when a place is taken again.
func newID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// lockMark stands between a node's ID and its sequence number.
const lockMark = "-lock-"

// node is one node in the queue of a lock.
type node struct {
	name string
	id   string
	seq  int32
}

// before reports whether n stands before m. Sequence numbers are signed and
// roll over, so it is their difference that counts; within one parent it gives
// the order of creation, that of the czxids.
func (n node) before(m node) bool { return n.seq-m.seq < 0 }

// parseNode returns the node of that name, unless it is none of ours.
func parseNode(name string) (node, bool) {
	id, seq, ok := strings.Cut(name, lockMark)
	if !ok {
		return node{}, false
	}
	n, err := strconv.ParseInt(seq, 10, 32)
	return node{name: name, id: id, seq: int32(n)}, err == nil
}

// queue is what the children of a lock's node say about one of them.
type queue struct {
	length int
	first  node // if length is not 0
	self   node
	found  bool // self is there
	ahead  node // the one just before self; its name is "" if self is the first
}

// readQueue finds id among the children. If there are several of that ID,
// because a request was repeated, self is the first of them (R11).
func readQueue(children []string, id string) queue {
	var q queue
	nodes := make([]node, 0, len(children))
	for _, name := range children {
		n, ok := parseNode(name)
		if !ok {
			continue
		}
		nodes = append(nodes, n)
		if q.length == 0 || n.before(q.first) {
			q.first = n
		}
		q.length++
		if n.id == id && (!q.found || n.before(q.self)) {
			q.self, q.found = n, true
		}
	}
	if !q.found {
		return q
	}
	for _, n := range nodes {
		if n.before(q.self) && (q.ahead.name == "" || q.ahead.before(n)) {
			q.ahead = n
		}
	}
	return q
}
