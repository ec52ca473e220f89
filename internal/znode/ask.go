package znode

import "context"

// Progress is how far a request came.
type Progress int

const (
	NotSent  Progress = iota // ctx was over, or no goroutine could be started
	Left                     // it was left behind when ctx ended, and may be carried out yet
	Answered                 // the driver has returned
)

// Ask makes one request, and returns when ctx ends (R8). The driver knows no
// contexts, and keeps what it could not send until there is a connection again: so the
// request runs in a goroutine of its own, which start starts unless it returns false.
// slots bounds the requests under way, those that were left included.
//
// The error is the driver's if the request was answered, and otherwise that of ctx; it
// is nil if start returned false.
func Ask[T any](
	ctx context.Context, slots chan struct{}, start func(func()) bool, request func() (T, error),
) (v T, p Progress, err error) {
	if ctx.Err() != nil {
		return v, NotSent, ctx.Err()
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return v, NotSent, ctx.Err()
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	if !start(func() {
		v, err := request()
		<-slots
		answers <- answer{v, err}
	}) {
		<-slots
		return v, NotSent, nil
	}
	select {
	case a := <-answers:
		return a.v, Answered, a.err
	case <-ctx.Done():
		return v, Left, ctx.Err()
	}
}
