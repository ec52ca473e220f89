package zookeeper

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// prepare authenticates, creates the session's own node and tries what this
// client may do with it. It returns an error if the service refuses that, or
// the session is over.
func (s *session) prepare() error {
	for authenticated := 0; ; {
		if err := s.reconnected(s.ctx); err != nil {
			return err
		}
		err := s.introduce(&authenticated)
		var r *refusal
		switch {
		case err == nil:
			close(s.ready)
			s.mu.Lock()
			s.change()
			s.mu.Unlock()
			return nil
		case s.isDead():
			return s.over()
		case errors.As(err, &r):
			return r
		}
		// Lost with the connection, or the service is busy with itself.
		s.pause(s.interval() / 4)
	}
}

// introduce is one try of prepare. The driver repeats credentials on each
// connection, once they have been accepted: they are counted.
func (s *session) introduce(authenticated *int) error {
	for auth := s.backend.opts.Auth; *authenticated < len(auth); *authenticated++ {
		a := auth[*authenticated]
		if _, err := ask(s.ctx, s, func(c *zk.Conn) (struct{}, error) {
			return struct{}{}, c.AddAuth(a.Scheme, []byte(a.Credentials))
		}); err != nil {
			return s.forbidden(err)
		}
	}
	err := s.write(s.createBeat)
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.makeParents(s.ctx, s.backend.prefix); err == nil {
			err = s.write(s.createBeat)
		}
	}
	if err != nil {
		return s.forbidden(err)
	}
	return s.tryRights()
}

func (s *session) createBeat(c *zk.Conn) error {
	_, err := c.Create(s.node, nil, zk.FlagEphemeral, s.backend.acl)
	if errors.Is(err, zk.ErrNodeExists) {
		return nil // an answer was lost: nobody else knows the name
	}
	return err
}

// forbidden says of a refusal what the service refuses, and what to do. Other
// errors pass as they are.
func (s *session) forbidden(err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	prefix := s.backend.prefix
	var what string
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		what = fmt.Sprintf("it is not allowed to create nodes under %s: check the credentials, and the ACL of that node or of its nearest parent", prefix)
	case errors.Is(err, zk.ErrAuthFailed):
		what = "it refuses the credentials"
	case errors.Is(err, zk.ErrInvalidACL):
		what = "it refuses the ACL for new nodes: give credentials with it, or another ACL"
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		what = fmt.Sprintf("there can be no nodes under %s, since it, or a node above it, ends with a session: give another prefix", prefix)
	default:
		what = fmt.Sprintf("it refuses to create nodes under %s: give another prefix", prefix)
	}
	return s.refusing(what, err)
}
