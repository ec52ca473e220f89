package zookeeper

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// makeParents creates dir and what is missing above it: as containers, which
// the service removes when they are empty, or as lasting nodes where it has no
// containers (before 3.5).
func (s *session) makeParents(ctx context.Context, dir string) error {
	err := s.makeContainer(ctx, dir)
	if !gone(err) {
		return err
	}
	// From below: the right to create may begin anywhere on the way.
	up := strings.LastIndexByte(dir, '/')
	if up <= 0 {
		return err
	}
	if err := s.makeParents(ctx, dir[:up]); err != nil {
		return err
	}
	if err := s.makeContainer(ctx, dir); !gone(err) {
		return err
	}
	return nil // reaped again at once: whoever needs it will see
}

func (s *session) makeContainer(ctx context.Context, path string) error {
	acl := s.backend.acl
	_, err := ask(ctx, s, func(c *zk.Conn) (string, error) { return c.CreateContainer(path, nil, zk.FlagContainer, acl) })
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	if err != nil && strings.Contains(err.Error(), unimplemented) {
		_, err = ask(ctx, s, func(c *zk.Conn) (string, error) { return c.Create(path, nil, 0, acl) })
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
	}
	return err
}

// unimplemented is how the driver puts the error of a server that does not
// know an operation.
const unimplemented = "unknown error: -6"
