package etcdguard

import (
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/fencing"
)

// keys makes etcd keys of names. The layout is part of what two releases of
// this package have to agree on: base ends in its version.
type keys struct{ base string }

// mark is where the mark of a resource is. Slashes are escaped, so that no
// resource of one prefix has the key of another's of a longer prefix (R18).
func (k keys) mark(resource string) string { return k.base + "mark/" + escape.Replace(resource) }

var escape = strings.NewReplacer("%", "%25", "/", "%2F")

// contains reports whether a write to key, or to all from key to before end,
// would touch what is the guard's own.
func (k keys) contains(key, end string) bool {
	low, high := k.base, k.base[:len(k.base)-1]+"0" // what comes after a slash
	if end == "" {
		return key >= low && key < high
	}
	const noEnd = "\x00" // all from key on
	return key < high && (end == noEnd || end > low)
}

// checkName finds what is wrong with the name of a resource, or of a lock.
func checkName(name string) error {
	if err := fencing.CheckName(name); err != nil {
		return fmt.Errorf("etcdguard: %w", err)
	}
	return nil
}

// checkOps finds operations that etcd, or the guard, would choke on, before
// anything is sent, and tells whether there are writes among them.
func (k keys) checkOps(ops []clientv3.Op) (writes bool, err error) {
	for _, op := range ops {
		switch {
		case op.IsTxn():
			_, then, orElse := op.Txn()
			for _, branch := range [][]clientv3.Op{then, orElse} {
				w, err := k.checkOps(branch)
				if err != nil {
					return false, err
				}
				writes = writes || w
			}
		case op.IsPut() || op.IsDelete():
			writes = true
			if k.contains(string(op.KeyBytes()), string(op.RangeBytes())) {
				return false, invalid("an operation writes to %.80q, where marks are (%s…): only the guard may write there", op.KeyBytes(), k.base)
			}
		case !op.IsGet():
			return false, invalid("an operation is empty: make it with clientv3.OpPut, OpDelete, OpGet or OpTxn")
		}
	}
	return writes, nil
}

// text is a token as etcd compares it: byte by byte, so that all have as many
// digits as the longest.
func text(token fencing.Token) string { return fmt.Sprintf("%020d", uint64(token)) }

func parse(key string, value []byte) (fencing.Token, error) {
	digits := strings.TrimLeft(string(value), "0")
	token, err := fencing.Parse(digits)
	if err != nil || text(token) != string(value) {
		return 0, fmt.Errorf("etcdguard: the mark at key %q is %.40q, which no guard has written: find out who did, and put the highest token there, in 20 digits", key, value)
	}
	return token, nil
}
