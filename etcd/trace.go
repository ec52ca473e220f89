package etcd

// trace is what an attempt may have left at etcd, as far as its answers tell. It asks nobody: the tests go
// through all of its states.
//
//	none ──► possible ──► queued ──► granted
//	  └─────────┴───────────┴──────────┴─────► settled
type trace struct {
	stage   stage
	created int64 // the key's create revision, from queued on
	// copies: a transaction that puts the key may be under way yet. Then the key is removed together with the
	// possibility of it (R7).
	copies bool
	// deleted: a deletion without an answer may have been carried out.
	deleted bool
}

// stage only ever moves down this list, and may leave out any step, with one exception: who finds that
// nothing is left is back at none.
type stage int

const (
	none     stage = iota // nothing of it is at etcd
	possible              // something of it may be
	queued                // its key has been put
	granted
	settled // nothing of it is there, nor can come
)

// sent notes what became of a transaction that puts the key.
func (t *trace) sent(f fate, err error) {
	t.copies = t.copies || f.underWay
	if f.underWay || err != nil && f.carriedOut {
		t.stage = possible
	}
}

// found notes that the key is there.
func (t *trace) found(created int64) { t.stage, t.created = queued, created }

// missing notes that the key is not there any more.
func (t *trace) missing(shadow bool) {
	if !t.copies && !shadow {
		t.stage = none
	}
}

// left reports whether an attempt that failed has to be taken back. A lease that is gone has taken the key
// along, and no transaction puts it any more; a shadow stays.
func (t *trace) left(leaseGone, shadow bool) bool {
	return t.stage > none && t.stage < settled && (!leaseGone || shadow)
}

// removal returns whether a deletion has to be sent, and whether it has to put the void key.
func (t *trace) removal(leaseGone, shadow bool) (needed, makeVoid bool) {
	return t.stage != settled && (!leaseGone || shadow), t.copies && !leaseGone
}

// removed notes what became of a deletion, and reports whether it removed the key, now or before.
func (t *trace) removed(f fate, err error, found bool) bool {
	t.deleted = t.deleted || f.carriedOut
	return err == nil && (found || t.deleted)
}
