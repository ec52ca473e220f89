package zkguard

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/znode"
)

func (s *store) markPath(resource string) string {
	return s.opts.Prefix + layout + "/mark/" + znode.Encode(resource)
}

// checkName finds what is wrong with the name of a resource, or of a lock.
func checkName(name string) error {
	if err := fencing.CheckName(name); err != nil {
		return fmt.Errorf("zkguard: %w", err)
	}
	return nil
}

// checkOps finds operations that the driver, or the guard, would choke on,
// before anything is sent.
func (g *Guard) checkOps(ops []any) error {
	for i, op := range ops {
		path, kind := target(op)
		own := g.opts.Prefix + layout
		switch {
		case kind == "":
			return invalid("operation %d is a %T: give *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest or *zk.CheckVersionRequest", i+1, op)
		case reflect.ValueOf(op).IsNil():
			return invalid("operation %d is nil", i+1)
		case !strings.HasPrefix(path, "/"):
			return invalid("operation %d is on %.80q: a path begins with a slash", i+1, path)
		case kind != "check" && (path == own || strings.HasPrefix(path, own+"/")):
			return invalid("operation %d writes to %.80q, where marks are (%s): only the guard may write there", i+1, path, own)
		}
	}
	return nil
}

// clone copies an operation, since its caller may use it again when it has
// given up, and the driver may send it after that.
func clone(op any) any {
	switch op := op.(type) {
	case *zk.CreateRequest:
		c := *op
		c.Data, c.Acl = slices.Clone(c.Data), slices.Clone(c.Acl)
		return &c
	case *zk.SetDataRequest:
		c := *op
		c.Data = slices.Clone(c.Data)
		return &c
	case *zk.DeleteRequest:
		c := *op
		return &c
	case *zk.CheckVersionRequest:
		c := *op
		return &c
	}
	return op
}

// target returns the path of an operation and what it does; "" for what is
// none.
func target(op any) (path, kind string) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		if op != nil {
			path = op.Path
		}
		return path, "create"
	case *zk.SetDataRequest:
		if op != nil {
			path = op.Path
		}
		return path, "set"
	case *zk.DeleteRequest:
		if op != nil {
			path = op.Path
		}
		return path, "delete"
	case *zk.CheckVersionRequest:
		if op != nil {
			path = op.Path
		}
		return path, "check"
	}
	return "", ""
}
