package zookeeper

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

// checkACL refuses an ACL by which some right that everybody needs who shares
// the locks is given to nobody. One client may go by several of the names in it,
// and which they are the service knows: what one of them lacks, another may
// give. So it is what all of them give together that counts here; whether it
// is this client's, tryRights finds out.
func checkACL(acl []zk.ACL) error {
	var given int32
	for _, a := range acl {
		given |= a.Perms
	}
	var lacking []string
	for _, r := range []struct {
		perm int32
		name string
	}{{zk.PermRead, "read"}, {zk.PermWrite, "write"}, {zk.PermCreate, "create"}, {zk.PermDelete, "delete"}} {
		if given&r.perm == 0 {
			lacking = append(lacking, r.name)
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("%w: zookeeper: the ACL gives nobody the right to %s nodes: who shares locks has to read, write, create and delete them",
			locker.ErrInvalid, strings.Join(lacking, " or to "))
	}
	return nil
}

// tryRights finds out whether this client has the rights that it needs on nodes
// with the ACL that it gives them: else it would get locks that it could not
// keep, or not give back. It asks of the session's own node, which has that ACL
// too. Only the write is carried out, as one more heartbeat: the service looks
// at the rights first, and below an ephemeral node nothing can be created, and
// nothing is there to be deleted.
func (s *session) tryRights() error {
	below := s.node + "/x"
	tries := []struct {
		right string
		f     func(*zk.Conn) error
	}{
		{"read", func(c *zk.Conn) error { _, _, err := c.Get(s.node); return err }},
		{"create", func(c *zk.Conn) error { _, err := c.Create(below, nil, zk.FlagEphemeral, s.backend.acl); return err }},
		{"delete", func(c *zk.Conn) error { return c.Delete(below, -1) }},
	}
	var asked []*pending[struct{}]
	for _, try := range tries {
		p, err := start(s.ctx, s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, try.f(c) })
		if err != nil {
			return err
		}
		asked = append(asked, p)
	}
	if err := s.write(s.beat); errors.Is(err, zk.ErrNoAuth) {
		return s.lacks("write", err)
	} else if err != nil {
		return err
	}
	for i, p := range asked {
		_, err, known := p.wait(s.ctx)
		switch {
		case !known:
			return err
		case errors.Is(err, zk.ErrNoAuth):
			return s.lacks(tries[i].right, err)
		case err != nil && disconnection(err):
			return s.failure(err)
		}
		// Any other answer comes after the look at the rights.
	}
	return nil
}

// lacks says which right this client does not have on its own nodes.
func (s *session) lacks(right string, err error) error {
	return s.refusing(fmt.Sprintf("this client has no right to %s nodes like %s: let the ACL give it the rights to read, write, create and delete", right, s.node), err)
}

// refusing is a refusal in words.
func (s *session) refusing(what string, err error) error {
	var r *refusal
	if errors.As(err, &r) {
		err = errors.Unwrap(r.err) // as the driver puts it
	}
	return &refusal{fmt.Errorf("zookeeper %s: %s: %w", strings.Join(s.backend.servers, ","), what, err)}
}
