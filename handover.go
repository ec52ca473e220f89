package locker

import "sync/atomic"

// handover passes one value from a goroutine that asks a backend to the caller
// it asks for, who may leave before the answer comes (R8). Whatever happens,
// exactly one of the two has the value in the end.
type handover[T any] struct {
	taken atomic.Bool // by the first of the two who comes to a decision
	value chan T
}

func newHandover[T any]() *handover[T] { return &handover[T]{value: make(chan T, 1)} }

// deliver gives v to the caller; false: the caller has left, v is still the
// goroutine's to deal with.
func (h *handover[T]) deliver(v T) bool {
	if !h.taken.CompareAndSwap(false, true) {
		return false
	}
	h.value <- v
	return true
}

// leave says that the caller does not wait any longer; if the value was
// delivered before, it returns it.
func (h *handover[T]) leave() (v T, delivered bool) {
	if h.taken.CompareAndSwap(false, true) {
		return v, false
	}
	return <-h.value, true
}
