package election

import (
	"context"
	"iter"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
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

// Find asks who leads; nil: nobody. The answer may be out of date.
func Find(ctx context.Context, in Inspector, name string) (*Leader, error) {
	st, err := in.Inspect(ctx, name)
	if err != nil || !st.Held {
		return nil, err
	}
	return &Leader{Address: st.Label, Term: st.Token}, nil
}

// Observe asks who leads again and again, about as often as every says (every second if it
// is zero or less), and yields the first answer, each that differs from the one before, and each error. It ends with
// ctx.
func Observe(ctx context.Context, in Inspector, name string, every time.Duration) iter.Seq2[*Leader, error] {
	if every <= 0 {
		every = time.Second
	}
	return func(yield func(*Leader, error) bool) {
		var last *Leader
		for told := false; ctx.Err() == nil; _ = clock.Sleep(ctx, clock.Jitter(every)) {
			now, err := Find(ctx, in, name)
			same := err == nil && told && (now == nil) == (last == nil) && (now == nil || *now == *last)
			if same || ctx.Err() != nil {
				continue
			}
			if !yield(now, err) {
				return
			}
			last, told = now, err == nil
		}
	}
}
