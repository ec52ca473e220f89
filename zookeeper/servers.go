package zookeeper

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
)

// servers is what a session knows about its servers. It remembers those that failed, so that the others are tried
// first (R23). Beside others that have no quorum, one that hung rests for as long as it was waited for: they may be
// electing a leader, and are asked again before it gets more time.
type servers struct {
	addrs    []string // in an order of this session's own, so that sessions spread over them
	failures map[string]failure
	up       time.Time // when a server last took up the session
	since    time.Time // the same, or when all had failed after that
	rounds   int       // how often all have failed
	streak   int       // how often all have failed since one took up the session
	outage   error     // why all have failed; nil: one has taken up the session since
}

// failure is why a server could not be used.
type failure struct {
	err  error
	at   time.Time
	hung time.Duration // how long it was waited for in vain; 0: it did answer
}

// rested is until when a server rests, if it does.
func (f failure) rested() time.Time { return f.at.Add(f.hung) }

// firstPatience is how long a server is waited for where there are others. It doubles each time that one hangs.
const firstPatience = time.Second

func newServers(addrs []string) servers {
	addrs = slices.Clone(addrs)
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return servers{addrs: addrs, failures: map[string]failure{}}
}

// order returns the addresses in the order in which they are to be tried, without those that rest: those that failed
// last come last, and one that hung as if it had failed when its rest ended.
func (s *servers) order(now time.Time) []string {
	awake := slices.DeleteFunc(slices.Clone(s.addrs), func(addr string) bool { return s.rests(addr, now) })
	slices.SortStableFunc(awake, func(a, b string) int {
		return s.failures[a].rested().Compare(s.failures[b].rested())
	})
	return awake
}

// rests reports whether a server has hung lately where another one has no quorum. That one does not rest.
func (s *servers) rests(addr string, now time.Time) bool {
	return now.Before(s.failures[addr].rested()) && s.electing()
}

// electing reports whether a server that was asked since one last took up the session has no quorum.
func (s *servers) electing() bool {
	for _, f := range s.failures {
		if f.hung == 0 && errors.Is(f.err, errNotServing) && f.at.After(s.up) {
			return true
		}
	}
	return false
}

// patience is how long a server is waited for, and no longer than most. Where all have failed, and none for want of a
// quorum, all are slow, or the way to them is.
func (s *servers) patience(addr string, most time.Duration) time.Duration {
	if len(s.addrs) == 1 || s.streak > 0 && !s.electing() {
		return most
	}
	patience := firstPatience
	if f := s.failures[addr]; f.at.After(s.up) { // what was before that tells nothing of today
		patience = max(patience, 2*f.hung)
	}
	return min(most, patience)
}

// taken notes that a server has taken up the session.
func (s *servers) taken(addr string, now time.Time) {
	s.up, s.since, s.streak, s.outage = now, now, 0, nil
	delete(s.failures, addr)
}

// The causes of a failure.
var (
	// errNotServing: a server accepted the connection, and did not take up the session.
	errNotServing = errors.New("it did not take up the session")
	// errOtherProtocol: trying again does not help, as with a wrong certificate.
	errOtherProtocol = errors.New("one side speaks TLS, the other does not")
)

const whyNotServing = "it has no quorum (an election), or more connections of this host than its limit " +
	"(maxClientCnxns, 60 if it is not set)"

// failed notes why a server could not be used, and for how long it hung. It reports whether all have failed now, or
// rest, counted from when a server last took up the session or all had failed.
func (s *servers) failed(addr string, err error, hung time.Duration, now time.Time) bool {
	s.failures[addr] = failure{err, now, hung}
	var causes []string
	hopeless, also := true, driver.ErrUnavailable
	for _, addr := range slices.Sorted(slices.Values(s.addrs)) {
		f, ok := s.failures[addr]
		if !ok || !f.at.After(s.since) && !s.rests(addr, now) {
			return false
		}
		causes = append(causes, addr+": "+strings.Join(strings.Fields(f.err.Error()), " "))
		var certificate *tls.CertificateVerificationError
		hopeless = hopeless && (errors.As(f.err, &certificate) || errors.Is(f.err, errOtherProtocol))
		if errors.Is(f.err, errNotServing) {
			also = fmt.Errorf("%w: %w", errNotServing, driver.ErrUnavailable)
		}
	}
	s.rounds++
	s.streak++
	s.since = now
	s.outage = fmt.Errorf("zookeeper: no server can be used: %s", strings.Join(causes, "; "))
	if hopeless {
		s.outage = &refusal{s.outage}
	} else {
		s.outage = fmt.Errorf("%w: %w", s.outage, also)
	}
	return true
}
