package election

import (
	"context"
	"time"

	"github.com/golockers/locker"
)

// IsLeader reports whether this candidate leads, and may act. It asks nobody.
func (c *Candidate) IsLeader() bool {
	t := c.term.Load()
	return t != nil && t.lasts()
}

// StepDown ends the present term, and returns before lead has. The candidate does not
// stand again for the pause, so that another gets to lead; if none stands, nobody
// leads meanwhile. StepDown does nothing, and returns false, if this candidate does
// not lead.
func (c *Candidate) StepDown(pause time.Duration) bool {
	t := c.term.Load()
	if t == nil || t.ctx.Err() != nil {
		return false
	}
	t.pause.Store(int64(pause))
	t.end(ErrSteppedDown)
	return true
}

// Leader is who leads, as the service knows it.
type Leader struct {
	Address string // Options.Address of the candidate
	Term    uint64 // 0: not known
}

// Inspector is the part of [locker.Client] that tells who holds a lock.
type Inspector interface {
	Inspect(ctx context.Context, name string) (locker.State, error)
}

// Find asks who leads; nil: nobody. The answer may be out of date; who follows
// the leader asks again, about every second.
func Find(ctx context.Context, in Inspector, name string) (*Leader, error) {
	st, err := in.Inspect(ctx, name)
	if err != nil || !st.Held {
		return nil, err
	}
	return &Leader{Address: st.Label, Term: st.Token}, nil
}
