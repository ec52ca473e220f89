package zookeeper

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// beatMark begins the names of the sessions' own nodes. No lock has a node of such a
// name: in an encoded name, two hexadecimal digits follow each %.
const beatMark = "%beat-"

// tokensNode is a child of a lock's node that says what is added to the czxids: see
// [driver.TokenRaiser]. It exists if tokens have ever been raised.
const tokensNode = "%tokens"

// One of these stands between a node's owner and its sequence number: readMark for a sharer.
const (
	lockMark = "-lock-"
	readMark = "-read-"
)

// sequenceDigits has the length of the sequence number that the service appends.
const sequenceDigits = "0000000000"

// node is one node in the queue of a lock.
type node struct {
	name   string
	id     string // the owner, and the mark
	seq    int32
	shared bool
}

// lastSeq is the last sequence number that is used. Servers since 3.6 stop counting at
// 2³¹-1 instead of rolling over, and nodes have no order then.
const lastSeq = 1<<31 - 1<<20

// parseNode parses the name of a node in a queue; false if it is not such a name.
func parseNode(name string) (node, bool) {
	for _, mark := range []string{lockMark, readMark} {
		if id, seq, ok := strings.Cut(name, mark); ok {
			n, err := strconv.ParseInt(seq, 10, 32)
			return node{name: name, id: id + mark, seq: int32(n), shared: mark == readMark}, err == nil
		}
	}
	return node{}, false
}

func (n node) isShared() bool { return n.shared }

// spent reports whether later nodes may have no order.
func (n node) spent() bool { return n.seq < 0 || n.seq > lastSeq }

// nodes is the queue of a lock, as one of its nodes sees it.
type nodes struct {
	all    []node // in their order
	self   node
	found  bool  // self is there
	raised bool  // tokens have been raised
	last   int64 // the transaction in which a node came or went last
}

// readQueue makes a queue of the names of a lock's children. self is the node of that id: the
// first of them, if there are several because a request was repeated (R11).
func readQueue(children []string, id string) nodes {
	var q nodes
	for _, name := range children {
		if n, ok := parseNode(name); ok {
			q.all = append(q.all, n)
		}
	}
	q.raised = slices.Contains(children, tokensNode)
	slices.SortFunc(q.all, func(a, b node) int { return int(a.seq - b.seq) })
	if i := slices.IndexFunc(q.all, func(n node) bool { return n.id == id }); i >= 0 {
		q.self, q.found = q.all[i], true
	}
	return q
}

// before returns the nodes ahead of self.
func (q nodes) before() []node {
	return q.all[:slices.Index(q.all, q.self)]
}

// inTheWay returns which nodes keep out one that is behind them: all of them, or only
// the writers if it is a sharer's.
func inTheWay(nodes []node, shared bool) []node {
	if !shared {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n node) bool { return n.shared })
}

// encode makes the name of a node from any name but "", injectively: what is not
// printable ASCII, or means something in a path, is written as % and two hexadecimal
// digits per byte (R18). Names with any other % are left for this package's own nodes.
//
// Programs of different releases have to agree on it.
func encode(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c > ' ' && c < 0x7f && c != '/' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// decode is the inverse of encode; false if encode does not return node for any name.
func decode(node string) (name string, ok bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && name != "" && encode(name) == node
}

// checkPrefix returns an error if no service could have locks below that path. It also
// refuses the root, and ZooKeeper's own nodes. The error says what to change, without the
// path.
func checkPrefix(prefix string) error {
	if !strings.HasPrefix(prefix, "/") || prefix == "/" {
		return errors.New("it has to name a node below the root, as in /app/locks")
	}
	for _, part := range strings.Split(prefix[1:], "/") {
		switch {
		case part == "":
			return errors.New("it has an empty part: write it without a slash at its end, and without two in a row")
		case part == "." || part == "..":
			return errors.New("the parts . and .. are not allowed")
		case strings.ContainsFunc(part, isForbidden):
			return errors.New("it has a character that ZooKeeper does not allow")
		}
	}
	if prefix == "/zookeeper" || strings.HasPrefix(prefix, "/zookeeper/") {
		return errors.New("the service keeps it for itself")
	}
	return nil
}

// isForbidden reports whether ZooKeeper refuses paths with that character.
func isForbidden(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 }
