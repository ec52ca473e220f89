package etcdguard

import (
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/fencing"
)

// keys makes etcd keys from names. base ends in the version of the layout, on which
// two releases of this package have to agree.
type keys struct{ base string }

// mark is the key of a resource's mark. Slashes are escaped, so that resources of two
// prefixes never share a key (R18).
func (k keys) mark(resource string) string { return k.base + "mark/" + escape.Replace(resource) }

var escape = strings.NewReplacer("%", "%25", "/", "%2F")

// contains reports whether a write to key, or to the range from key up to but not
// including end, would touch the guard's own keys.
func (k keys) contains(key, end string) bool {
	low, high := k.base, k.base[:len(k.base)-1]+"0" // what comes after a slash
	if end == "" {
		return key >= low && key < high
	}
	const noEnd = "\x00" // all from key on
	return key < high && (end == noEnd || end > low)
}

// checkOps refuses empty operations, and writes to the guard's own keys, before
// anything is sent. It reports whether there are writes among ops.
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
				return false, invalid("an operation writes to %.80q, where marks are (%s…): "+
					"only the guard may write there", op.KeyBytes(), k.base)
			}
		case !op.IsGet():
			return false, invalid("an operation is empty: make it with clientv3.OpPut, OpDelete, OpGet or OpTxn")
		}
	}
	return writes, nil
}

// text is a token as etcd compares it, byte by byte: each has as many digits as the
// longest.
func text(token fencing.Token) string { return fmt.Sprintf("%020d", uint64(token)) }

func parse(key string, value []byte) (fencing.Token, error) {
	digits := strings.TrimLeft(string(value), "0")
	token, err := fencing.Parse(digits)
	if err != nil || text(token) != string(value) {
		return 0, fmt.Errorf("etcdguard: the mark at key %q is %.40q, which no guard has written: "+
			"find out who wrote it, and put the highest token there, in 20 digits", key, value)
	}
	return token, nil
}
