// Package znode is what the packages that keep nodes in a ZooKeeper service of
// others' have in common: names that people choose, as names of nodes, and the
// path that a program is told to keep its nodes under, what the driver's errors mean,
// and how a call of the driver is left when its context ends.
package znode

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Encode makes the name of a node out of any name but "", injectively: what is
// not a printable ASCII character, and what means something in a path, is
// written as % and two hexadecimal digits per byte (R18). Since a % is always
// followed by these, a caller may use names with another % in them for nodes of
// its own.
//
// It is part of what programs of different releases have to agree on.
func Encode(name string) string {
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

// Decode returns the name that Encode made a node's name of; false if it did not.
func Decode(node string) (name string, ok bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && name != "" && Encode(name) == node
}

// CheckPrefix returns an error if no nodes can be kept below that path, whatever
// the service: the root and what is ZooKeeper's own are refused too. The error
// says what to change, without the path, and gives example for one that is
// right. The path may have limit bytes; with 0, any number.
func CheckPrefix(prefix, example string, limit int) error {
	if !strings.HasPrefix(prefix, "/") || prefix == "/" {
		return fmt.Errorf("it has to name a node below the root, as in %s", example)
	}
	if limit > 0 && len(prefix) > limit {
		return fmt.Errorf("it has %d bytes: the limit is %d", len(prefix), limit)
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

// isForbidden reports whether ZooKeeper allows no path with that character.
func isForbidden(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 }
