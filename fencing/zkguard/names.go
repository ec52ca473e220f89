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

// checked copies operations. It refuses those that the driver cannot send, or that write to the
// guard's own nodes, before anything is sent.
func (g *Guard) checked(ops []any) (copies []any, err error) {
	own := g.opts.Prefix + layout
	for i, op := range ops {
		if v := reflect.ValueOf(op); v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, invalid("operation %d is nil", i+1)
		}
		path, kind, copied := parts(op)
		switch {
		case kind == "":
			return nil, invalid("operation %d is a %T: "+
				"give *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest or *zk.CheckVersionRequest", i+1, op)
		case !strings.HasPrefix(path, "/"):
			return nil, invalid("operation %d is on %.80q: a path begins with a slash", i+1, path)
		case kind != "check" && (path == own || strings.HasPrefix(path, own+"/")):
			return nil, invalid("operation %d writes to %.80q, where marks are (%s): only the guard may write there",
				i+1, path, own)
		}
		copies = append(copies, copied)
	}
	return copies, nil
}

// parts returns the path of an operation that is not nil, what it does, and a copy: after a call was
// given up, the caller may change the operation while the driver still sends it. kind is "" for any
// other type.
func parts(op any) (path, kind string, copied any) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		c := *op
		c.Data, c.Acl = slices.Clone(c.Data), slices.Clone(c.Acl)
		return op.Path, "create", &c
	case *zk.SetDataRequest:
		c := *op
		c.Data = slices.Clone(c.Data)
		return op.Path, "set", &c
	case *zk.DeleteRequest:
		c := *op
		return op.Path, "delete", &c
	case *zk.CheckVersionRequest:
		c := *op
		return op.Path, "check", &c
	}
	return "", "", nil
}
