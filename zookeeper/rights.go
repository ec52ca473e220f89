package zookeeper

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// forbidden says of a refusal what the service refuses, and what to do. Other
// errors pass as they are.
func (s *session) forbidden(err error) error {
	prefix := s.backend.prefix
	switch {
	case !isRefusal(err):
		return err
	case errors.Is(err, zk.ErrNoAuth):
		return refusing(err, "it is not allowed to create nodes under %s: "+
			"check the credentials, and the ACL of that node or of its nearest parent", prefix)
	case errors.Is(err, zk.ErrAuthFailed):
		return refusing(err, "it refuses the credentials")
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return refusing(err, "there can be no nodes under %s, since it, or a node above it, ends with a session: "+
			"give another prefix", prefix)
	}
	return refusing(err, "it refuses to create nodes under %s", prefix)
}

// refusing is a refusal in words.
func refusing(err error, format string, args ...any) error {
	return &refusal{fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))}
}

// makeParents creates dir and what is missing above it: as containers, which
// the service removes when they are empty.
func makeParents(c *zk.Conn, dir string, acl []zk.ACL) error {
	err := makeContainer(c, dir, acl)
	up := strings.LastIndexByte(dir, '/')
	if !gone(err) || up <= 0 {
		return err
	}
	// From below: the right to create may begin anywhere on the way.
	if err := makeParents(c, dir[:up], acl); err != nil {
		return err
	}
	if err := makeContainer(c, dir, acl); !gone(err) {
		return err
	}
	return nil // reaped again at once: the next request that needs it will see
}

func makeContainer(c *zk.Conn, path string, acl []zk.ACL) error {
	_, err := c.CreateContainer(path, nil, zk.FlagContainer, acl)
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}
