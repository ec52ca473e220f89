package redlock

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/golockers/locker/internal/redisconn"
)

// answer is what a node says to one question about a lock.
type answer struct {
	node int
	to   question
	said vote // to a vote
	reply
}

// reply is what a node says to a question whose script answers with a State, or why it
// does not.
type reply struct {
	state    redisconn.State
	sent     time.Time // before it was given to the driver
	repeated bool      // it was sent more than once: a copy may still be under way, or have done it before
	err      error
}

type question uint8

const (
	toLook question = iota // at the node's server, before it can vote
	toVote
	toRaise
	toRenew
	toRelease
)

// answers are those of all nodes to the questions of one goroutine, which reads them when
// there are enough to decide something: to be woken for each costs more than what it
// does then.
type answers struct {
	enough chan struct{} // capacity 1

	mu   sync.Mutex
	came []answer
	want int // how many the reader waits for
}

func newAnswers(nodes int) *answers {
	return &answers{enough: make(chan struct{}, 1), came: make([]answer, 0, nodes)}
}

// from is what a node calls with its answer to a question. It does not block.
func (m *answers) from(i int, to question) func(reply) {
	return func(r reply) { m.put(answer{node: i, to: to, reply: r}) }
}

func (m *answers) put(a answer) {
	m.mu.Lock()
	m.came = append(m.came, a)
	enough := len(m.came) >= m.want
	m.mu.Unlock()
	if enough {
		signal(m.enough)
	}
}

// take calls with for all answers that have come, once they are so many. It returns false
// if done is closed before that.
func (m *answers) take(done <-chan struct{}, want int, with func(answer)) bool {
	for {
		m.mu.Lock()
		m.want = want
		if len(m.came) >= want {
			break
		}
		m.mu.Unlock()
		select {
		case <-m.enough:
		case <-done:
			return false
		}
	}
	came := m.came
	m.came = nil
	m.mu.Unlock()
	for _, a := range came {
		with(a)
	}
	return true
}

// signal wakes the goroutine that waits for c, which has a capacity of 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// outcome is what came of asking one node by each.
type outcome[T any] struct {
	node int
	got  T
	err  error
}

// each puts to all nodes at once a question whose function blocks, and yields the outcomes as they
// come, until ctx is done. They are asked now, and the outcomes can be had once. Nobody waits for the other nodes after that, nor after a break: each is
// asked by a goroutine of the Backend.
func each[T any](ctx context.Context, b *Backend, ask func(n *node) (T, error)) iter.Seq[outcome[T]] {
	came := make(chan outcome[T], len(b.nodes))
	for i, n := range b.nodes {
		if !b.start(func() {
			got, err := ask(n)
			came <- outcome[T]{i, got, err}
		}) {
			came <- outcome[T]{node: i, err: redisconn.ErrClosed}
		}
	}
	return func(yield func(outcome[T]) bool) {
		for range b.nodes {
			var o outcome[T]
			select {
			case o = <-came:
			case <-ctx.Done():
				select {
				case o = <-came: // before its end, perhaps
				default:
					return
				}
			}
			if !yield(o) {
				return
			}
		}
	}
}
