package redisguard

import (
	"fmt"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

const (
	defaultPrefix = "fencing"
	maxPrefixLen  = 256
	// layout follows the prefix. Its number changes when the meaning of the keys
	// changes, so that no release misreads the keys of another.
	layout = ":1:"
)

// MarkKey returns the key of a resource's mark, for programs that put [Prelude] before
// their own scripts, read the mark with GET (for people and for tests), or delete it with
// its resource (then a token of any age passes). With the default prefix, the mark of
//
//	orders/42        is  fencing:1:{orders/42}
//	{user:7}:cart    is  fencing:1:={user:7}:cart
//	odd}name         is  fencing:1:%{odd%7Dname}
//
// so that the mark shares the hash slot of a key with the resource's name, where that
// is possible, and two resources never share a mark.
func (g *Guard) MarkKey(resource string) (string, error) {
	if err := fencing.CheckName(resource); err != nil {
		return "", fmt.Errorf("redisguard: %w", err)
	}
	switch {
	case hashTag(resource) != resource:
		return g.base + "=" + resource, nil
	case strings.Contains(resource, "}"):
		// Within braces it would end the tag too early.
		return g.base + "%{" + escape.Replace(resource) + "}", nil
	}
	return g.base + "{" + resource + "}", nil
}

var escape = strings.NewReplacer("%", "%25", "}", "%7D")

// checkKeys refuses keys that a Cluster could not write in one step with the mark:
// their hash tag has to be that of the mark. Another tag is refused even if its slot
// happens to be the same.
func (g *Guard) checkKeys(resource, mark string, keys []string) error {
	want := hashTag(mark)
	for _, key := range keys {
		switch {
		case strings.HasPrefix(key, g.base):
			return invalid("%q begins like the keys of marks: only the guard may write there", key)
		case g.clustered && hashTag(key) != want:
			return invalid("%q is not in the hash slot of the mark of %q, so that a Cluster cannot write both in one "+
				"step: put {%s} into the key, as in %q", key, resource, want, fmt.Sprintf("{%s}:%s", want, key))
		}
	}
	return nil
}

// hashTag returns the part of a key that a Cluster hashes: the text between the first
// { and the first } after it, or the whole key if there is no such text. (Redis
// Cluster specification, "Hash tags".)
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("redisguard: %w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
