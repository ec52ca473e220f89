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

// servers is what a session knows of its servers. Those that failed are remembered: the others are tried before
// them (R23).
type servers struct {
	addrs    []string // in an order of this session's own, so that sessions spread over them
	failures map[string]failure
	since    time.Time // when one took up the session last, or all had failed
	rounds   int       // how often all have failed
	streak   int       // how often since one has not
	outage   error     // why, until one has not
}

// failure is why a server could not be used.
type failure struct {
	err error
	at  time.Time
}

func newServers(addrs []string) servers {
	addrs = slices.Clone(addrs)
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return servers{addrs: addrs, failures: map[string]failure{}}
}

// order returns them in the order in which they are to be tried: those that failed last come last.
func (s *servers) order() []string {
	return slices.SortedStableFunc(slices.Values(s.addrs), func(a, b string) int {
		return s.failures[a].at.Compare(s.failures[b].at)
	})
}

// taken notes that one has taken up the session.
func (s *servers) taken(now time.Time) { s.since, s.streak, s.outage = now, 0, nil }

// The causes of a failure.
var (
	// errNotServing: a server was there, and did not take up the session.
	errNotServing = errors.New("it did not take up the session")
	// errOtherProtocol: asking again does not help, as with a certificate.
	errOtherProtocol = errors.New("one side speaks TLS, the other does not")
)

const whyNotServing = "it has no quorum (an election), or more connections of this host than its limit " +
	"(maxClientCnxns, 60 if it is not set)"

// failed notes why a server could not be used. It reports whether all have failed now, since one had taken up the
// session or all had failed before.
func (s *servers) failed(addr string, err error, now time.Time) bool {
	s.failures[addr] = failure{err, now}
	var causes []string
	hopeless, also := true, driver.ErrUnavailable
	for _, addr := range slices.Sorted(slices.Values(s.addrs)) {
		f, ok := s.failures[addr]
		if !ok || !f.at.After(s.since) {
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
