package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/golockers/locker/driver"
)

// leastBuffer is the least jute.maxbuffer of the servers that is provided for: an
// eighth of its default, and what the driver needs anyway to set its watches again on
// a new connection.
const leastBuffer = 128 << 10

// maxPaths bounds the bytes that the paths of one session's nodes may have. When a
// session ends, the service makes one transaction that lists the paths of all its
// nodes. If that is longer than 2 × jute.maxbuffer, no server can read it, and the
// service is lost, also after a restart (ZOOKEEPER-4306). What else is in the
// transaction has far less than 1 KiB. Beyond the bound, the backend opens another
// session (R25).
const maxPaths = 2*leastBuffer - 1<<10

// pathBytes is what a path needs in that transaction: its length comes before it.
func pathBytes(path string) int { return 4 + len(path) }

// join returns a session that is ready and has room for so many bytes of paths, 0 for
// what makes no node. It is the oldest with room, so that the others become unused and
// can end. Its user calls leave.
func (b *Backend) join(ctx context.Context, bytes int) (*session, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, driver.ErrClosed
	}
	b.live = slices.DeleteFunc(b.live, (*session).isOver)
	others := len(b.live)
	i := slices.IndexFunc(b.live, func(s *session) bool {
		return s.paths == 0 || s.paths+bytes+pathBytes(s.node) <= maxPaths
	})
	if i < 0 {
		s, err := newSession(b)
		if err != nil {
			b.mu.Unlock()
			return nil, fmt.Errorf("zookeeper: %w: %w", err, driver.ErrUnavailable)
		}
		i, b.live = others, append(b.live, s)
	}
	s := b.live[i]
	s.users++
	s.paths += bytes
	b.mu.Unlock()
	err := s.wait(ctx, false, func() bool { return isClosed(s.ready) })
	if err != nil {
		s.leave(bytes)
		if i > 0 {
			err = fmt.Errorf("zookeeper: the locks of this client fill %d connections "+
				"(each can have %d KiB of names), and need another: %w", i, maxPaths>>10, err)
		}
		return nil, err
	}
	return s, nil
}

// leave ends a use, and gives back its room. A session that nobody uses ends after one more
// timeout: an idle client writes nothing, and to open another session is fewer writes
// than the heartbeats of a timeout are.
func (s *session) leave(bytes int) {
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	s.paths -= bytes
	if s.users--; s.users == 0 {
		s.idle.Reset(s.backend.opts.SessionTimeout)
	}
}

// retire ends the session if nobody uses it.
func (s *session) retire() {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.users == 0 {
		b.live = slices.DeleteFunc(b.live, func(other *session) bool { return other == s })
		s.end(errUnused)
	}
}

var errUnused = errors.New("the session was not used any more")

// String names the servers, for messages.
func (b *Backend) String() string { return strings.Join(b.servers, ",") }

// Close ends the sessions, and with them all that the backend still has in the
// service. If the service cannot be reached, the sessions end there with their
// timeout. It returns within a second.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	live := slices.Clone(b.live)
	b.mu.Unlock()
	for _, s := range live {
		s.end(driver.ErrClosed)
	}
	b.running.Wait()
	return nil
}
