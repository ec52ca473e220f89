package zkguard

import (
	"reflect"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/internal/znode"
)

func (g *Guard) markPath(resource string) string {
	return g.opts.Prefix + layout + "/mark/" + znode.Encode(resource)
}

// checkOps refuses operations that the driver cannot send, or that write to the
// guard's own nodes, before anything is sent.
func (g *Guard) checkOps(ops []any) error {
	own := g.opts.Prefix + layout
	for i, op := range ops {
		if v := reflect.ValueOf(op); v.Kind() == reflect.Pointer && v.IsNil() {
			return invalid("operation %d is nil", i+1)
		}
		path, kind := target(op)
		switch {
		case kind == "":
			return invalid("operation %d is a %T: "+
				"give *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest or *zk.CheckVersionRequest", i+1, op)
		case !strings.HasPrefix(path, "/"):
			return invalid("operation %d is on %.80q: a path begins with a slash", i+1, path)
		case kind != "check" && (path == own || strings.HasPrefix(path, own+"/")):
			return invalid("operation %d writes to %.80q, where marks are (%s): only the guard may write there",
				i+1, path, own)
		}
	}
	return nil
}

// clone copies an operation: after a call was given up, the caller may change the
// operation while the driver still sends it.
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

// target returns the path of an operation that is not nil, and what it does; ""
// for any other type.
func target(op any) (path, kind string) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return op.Path, "create"
	case *zk.SetDataRequest:
		return op.Path, "set"
	case *zk.DeleteRequest:
		return op.Path, "delete"
	case *zk.CheckVersionRequest:
		return op.Path, "check"
	}
	return "", ""
}
