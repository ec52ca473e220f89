package zookeeper

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

// tryRights finds out whether this client has the rights that it needs on nodes
// with the ACL that it gives them: else it would get locks that it could not
// keep, or not give back. It asks of the session's own node, which has that ACL
// too. Only the write is carried out, as one more heartbeat: the service looks
// at the rights first, and below an ephemeral node nothing can be created, and
// nothing is there to be deleted.
func (s *session) tryRights() error {
	below := s.node + "/x"
	for _, try := range []struct {
		right string
		f     func(*zk.Conn) error
	}{
		{"write", nil},
		{"read", func(c *zk.Conn) error { _, _, err := c.Get(s.node); return err }},
		{"create", func(c *zk.Conn) error {
			_, err := c.Create(below, nil, zk.FlagEphemeral, s.backend.acl)
			return err
		}},
		{"delete", func(c *zk.Conn) error { return c.Delete(below, -1) }},
	} {
		var err error
		if try.f == nil {
			err = s.write(s.beat)
		} else { // proves nothing of the session: see [proof]
			err = s.do(s.ctx, try.f)
		}
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			return s.lacks(try.right, err)
		case errors.Is(err, locker.ErrUnavailable):
			return err
		}
		// Any other answer comes after the look at the rights.
	}
	return nil
}

// lacks says which right this client does not have on its own nodes.
func (s *session) lacks(right string, err error) error {
	return refusing(err, "this client has no right to %s nodes like %s: "+
		"let the ACL give it the rights to read, write, create and delete", right, s.node)
}

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
	case errors.Is(err, zk.ErrInvalidACL):
		return refusing(err, "it refuses the ACL for new nodes: give credentials with it, or another ACL")
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
