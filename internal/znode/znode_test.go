package znode_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/internal/znode"
)

func TestEncodeIsInjective(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "A", "/", "%2F", "%", ".", "..", "%2E", "...", "ä", "\x00", "日本",
		"a b", "%beat-x", "😀", "\u200b"} {
		e := znode.Encode(name)
		assert.NotContains(t, e, "/")
		assert.NotContains(t, []string{".", "..", ""}, e)
		assert.Regexp(t, "^([^%]|%[0-9A-F]{2})*$", e, "another % is the caller's")
		for _, r := range e {
			assert.True(t, r > ' ' && r < 0x7f)
		}
		assert.NotContains(t, seen, e)
		back, ok := znode.Decode(e)
		assert.True(t, ok)
		assert.Equal(t, name, back)
		seen[e] = name
	}
}

// Another release finds the nodes under the names that they had.
func TestEncodeStaysAsItIs(t *testing.T) {
	for name, want := range map[string]string{
		"job": "job", "A-z_0.9~!": "A-z_0.9~!", "a/b c": "a%2Fb%20c", "100%": "100%25", ".": "%2E",
		"..": "%2E%2E", "...": "...", ".a": ".a",
		"ä": "%C3%A4", "\x00\x7f": "%00%7F",
	} {
		assert.Equal(t, want, znode.Encode(name), "%q", name)
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
		assert.EqualError(t, znode.CheckPrefix(prefix, "/app/locks", 0), want, "%q", prefix)
	}
	for _, prefix := range []string{"/a", "/app/locks", "/a b", "/...", "/ä/日本", "/zookeepers",
		"/a/zookeeper", "/" + strings.Repeat("a", 5000)} {
		assert.NoError(t, znode.CheckPrefix(prefix, "/app/locks", 0), "%.40q", prefix)
	}
}

func TestPrefixHasTheLimitAndTheExampleOfItsCaller(t *testing.T) {
	assert.NoError(t, znode.CheckPrefix("/1234567", "/x", 8))
	assert.EqualError(t, znode.CheckPrefix("/12345678", "/x", 8), "it has 9 bytes: the limit is 8")
	assert.EqualError(t, znode.CheckPrefix("123456789", "/x", 8),
		"it has to name a node below the root, as in /x", "what is wrong first is said")
}

func TestDecodeRefusesWhatEncodeDoesNotMake(t *testing.T) {
	for _, node := range []string{"", "%beat-x", "%2f", "%41", "a b", "%", "a/b"} {
		_, ok := znode.Decode(node)
		assert.False(t, ok, node)
	}
}

// What is not known to be refused may have been carried out (R7).
func TestKindOf(t *testing.T) {
	for err, want := range map[error]znode.Kind{
		nil:                               znode.Done,
		zk.ErrNoNode:                      znode.Node,
		zk.ErrNodeExists:                  znode.Node,
		zk.ErrBadVersion:                  znode.Node,
		zk.ErrNoAuth:                      znode.Refused,
		zk.ErrInvalidACL:                  znode.Refused,
		zk.ErrNoChildrenForEphemerals:     znode.Refused,
		errors.New("unknown error: -6"):   znode.Refused,
		errors.New("unknown error: -120"): znode.Refused, // ephemeral nodes on a local session
		errors.New("unknown error: -199"): znode.Refused,
		errors.New("unknown error: -119"): znode.Unknown, // a server that is read-only for the moment
		errors.New("unknown error: -127"): znode.Unknown, // too much work for the moment
		errors.New("unknown error: -4"):   znode.Unknown,
		errors.New("read: EOF"):           znode.Unknown,
		zk.ErrNoServer:                    znode.Unsent,
		zk.ErrConnectionClosed:            znode.Unknown,
		zk.ErrSessionMoved:                znode.Unknown,
		zk.ErrSessionExpired:              znode.Unknown,
		zk.ErrAPIError:                    znode.Unknown,
	} {
		assert.Equal(t, want, znode.KindOf(err), "%v", err)
	}
}
