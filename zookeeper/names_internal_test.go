package zookeeper

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
)

// Encode exports encode to the tests outside the package.
var Encode = encode

// Other releases find the nodes under the same names. No two names share a node, since each is decoded from its own, and
// none has the node of a session, which has another % in it.
func TestEncodeStaysAsItIs(t *testing.T) {
	for name, want := range map[string]string{
		"job": "job", "A-z_0.9~!": "A-z_0.9~!", "a/b c": "a%2Fb%20c", "100%": "100%25", "%2F": "%252F",
		"%beat-x": "%25beat-x", ".": "%2E", "..": "%2E%2E", "...": "...", ".a": ".a", "ä": "%C3%A4",
		"\x00\x7f": "%00%7F", "日": "%E6%97%A5", "😀": "%F0%9F%98%80", "\u200b": "%E2%80%8B",
	} {
		assert.Equal(t, want, encode(name), "%q", name)
		back, ok := decode(want)
		assert.True(t, ok, want)
		assert.Equal(t, name, back)
	}
}

func TestPrefixThatCannotBeIsRefused(t *testing.T) {
	const (
		below  = "it has to name a node below the root, as in /app/locks"
		empty  = "it has an empty part: write it without a slash at its end, and without two in a row"
		dots   = "the parts . and .. are not allowed"
		letter = "it has a character that ZooKeeper does not allow"
		own    = "the service keeps it for itself"
	)
	for prefix, want := range map[string]string{
		"": below, "/": below, "a": below, "a/b": below,
		"/a/": empty, "/a//b": empty, "//": empty,
		"/a/../b": dots, "/.": dots,
		"/a\x00": letter, "/a\x1f": letter, "/a\x7f": letter, "/a\u0085": letter, "/a\ue000": letter,
		"/\U0001f600": letter, "/a\xff": letter,
		"/zookeeper": own, "/zookeeper/a": own,
	} {
		assert.EqualError(t, checkPrefix(prefix), want, "%q", prefix)
	}
	for _, prefix := range []string{"/a", "/app/locks", "/a b", "/...", "/ä/日本", "/zookeepers",
		"/a/zookeeper", "/" + strings.Repeat("a", 5000)} {
		assert.NoError(t, checkPrefix(prefix), "%.40q", prefix)
	}
}

func TestDecodeRefusesWhatEncodeDoesNotMake(t *testing.T) {
	for _, node := range []string{"", "%beat-x", "%2f", "%41", "a b", "%", "a/b"} {
		_, ok := decode(node)
		assert.False(t, ok, node)
	}
}

// A request that is not known to be refused may have been carried out (R7).
func TestKindOf(t *testing.T) {
	for err, want := range map[error]kind{
		nil:                               answered,
		zk.ErrNoNode:                      answered,
		zk.ErrNodeExists:                  answered,
		zk.ErrBadVersion:                  answered,
		zk.ErrNoAuth:                      refused,
		zk.ErrInvalidACL:                  refused,
		zk.ErrNoChildrenForEphemerals:     refused,
		errors.New("unknown error: -6"):   refused,
		errors.New("unknown error: -120"): refused, // ephemeral nodes on a local session
		errors.New("unknown error: -199"): refused,
		errors.New("unknown error: -119"): unknown, // a server that is read-only for the moment
		errors.New("unknown error: -127"): unknown, // too much work for the moment
		errors.New("unknown error: -4"):   unknown,
		errors.New("read: EOF"):           unknown,
		zk.ErrNoServer:                    unknown,
		zk.ErrConnectionClosed:            unknown,
		zk.ErrSessionMoved:                unknown,
		zk.ErrSessionExpired:              unknown,
		zk.ErrAPIError:                    unknown,
	} {
		assert.Equal(t, want, kindOf(err), "%v", err)
	}
}
