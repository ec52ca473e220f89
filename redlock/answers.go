package redlock

import (
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

// put does not block.
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
