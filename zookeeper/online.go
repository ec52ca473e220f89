package zookeeper

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// opened notes a connection that was made, so that it can be given up.
func (s *session) opened(l *link) {
	s.mu.Lock()
	s.latest = l
	over := s.err != nil
	s.mu.Unlock()
	if over {
		l.abort()
	}
}

// greeted is called when a server has taken up the session, or refused to.
func (s *session) greeted(l *link, id int64, timeout time.Duration) {
	if id == 0 {
		return // expired; the driver tells
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.timeout = id, timeout
	s.link, s.since = l, time.Time{}
	s.failures, s.outage = nil, nil
	s.proof.begin(l, guardTime(timeout, s.backend.opts.SessionTimeout, s.backend.opts.TickTime))
	s.change()
}

func (s *session) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		s.link, s.since = nil, time.Now()
		s.change()
	}
}

// linkFailed notes why a server could not be used.
func (s *session) linkFailed(server string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == nil {
		s.failures = make(map[string]error)
	}
	s.failures[server] = err
}

// roundBegins notes that all servers are tried (again).
func (s *session) roundBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
}

// roundFailed notes that no server could be used.
func (s *session) roundFailed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var causes []string
	for server, err := range s.failures {
		causes = append(causes, server+": "+oneLine(err.Error()))
	}
	slices.Sort(causes)
	s.failed = s.begun
	s.outage = fmt.Errorf("zookeeper: no server can be used (%s): %w", strings.Join(causes, "; "), locker.ErrUnavailable)
	s.change()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// wait returns nil when cond holds, which is called with s.mu held, and
// otherwise why not: the session is over, no server can be used, or ctx ended.
// In an outage, the servers are tried once more.
func (s *session) wait(ctx context.Context, cond func() bool) error {
	var timer *time.Timer
	var late <-chan time.Time
	after := -1 // a round has to fail that is later than this
	for {
		s.mu.Lock()
		ok, changed, outage, over := cond(), s.changed, s.outage, s.err != nil
		begun, failed := s.begun, s.failed
		s.mu.Unlock()
		switch {
		case over:
			return s.over()
		case ok:
			return nil
		case outage == nil:
		case after < 0:
			after, timer = begun, time.NewTimer(lastPause)
			defer timer.Stop()
			late = timer.C
			select {
			case s.hurry <- struct{}{}:
			default:
			}
		case failed > after:
			return outage
		}
		select {
		case <-changed:
		case <-late:
			return outage
		case <-ctx.Done():
			return unanswered(ctx)
		}
		if after < 0 {
			after = 0 // it has been waited for the round that was under way
		}
	}
}

// online waits for a connection.
func (s *session) online(ctx context.Context) error {
	return s.wait(ctx, func() bool { return s.link != nil })
}

// reconnected waits for a connection through an outage, for as long as the
// session lives.
func (s *session) reconnected(ctx context.Context) error {
	for {
		s.mu.Lock()
		online, changed, over := s.link != nil, s.changed, s.err != nil
		s.mu.Unlock()
		if over {
			return s.over()
		}
		if online {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return unanswered(ctx)
		case <-s.dead:
			return s.over()
		}
	}
}

// offline returns for how long there has been no connection.
func (s *session) offline() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since)
}
