package etcd

// trace is what an attempt may have left at etcd, as far as its answers tell. It asks nobody: the tests go
// through all of its states.
//
//	none ──► possible ──► queued ──► granted ──► kept
//	  └─────────┴───────────┴──────────┴───────────┴───► settled
type trace struct {
	stage   stage
	created int64 // the key's create revision, from queued on
	// copies: a transaction that puts the key may be under way yet. Then the key is removed together with the
	// possibility of it (R7).
	copies bool
	// floors: they may have been put.
	floors bool
	// deleted: a deletion without an answer may have been carried out. keeping: a release that keeps the lock
	// may. asGranted: one may that left the floor of the MinHold as it was granted.
	deleted, keeping, asGranted bool
}

// stage only ever moves down this list, and may leave out any step, with one exception: who finds that
// nothing is left is back at none.
type stage int

const (
	none     stage = iota // nothing of it is at etcd
	possible              // something of it may be
	queued                // its key has been put
	granted
	kept    // it was released, and the floor of its MinHold may be there
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

// missing notes that the key of a waiter is not there any more.
func (t *trace) missing() {
	if !t.copies && !t.floors {
		t.stage = none
	}
}

// left reports whether an attempt that failed has to be taken back. A lease that is gone has taken the key
// along, and no transaction puts it any more; floors stay.
func (t *trace) left(leaseGone bool) bool {
	return t.stage > none && t.stage < settled && (!leaseGone || t.floors)
}

// removal returns whether a deletion has to be sent, and whether it has to put the void key.
func (t *trace) removal(leaseGone bool) (needed, makeVoid bool) {
	return t.stage != settled && (!leaseGone || t.floors), t.copies && !leaseGone
}

// removed notes what became of a release, which keeps the lock or does not, and reports whether there was
// anything for it to end, now or before: the key, or the floor of a lock that is kept.
func (t *trace) removed(f fate, err error, keep, key, floor bool) bool {
	if keep {
		t.keeping = t.keeping || f.carriedOut || key
	} else {
		t.deleted = t.deleted || f.carriedOut
	}
	return err == nil && (key || t.keeping && floor || t.deleted && !keep)
}
