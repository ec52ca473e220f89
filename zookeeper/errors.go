package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
)

// kind is what an error from the driver means for a request (R17).
type kind int

const (
	// answered: there is no error, or the service has done nothing because a node exists
	// or does not, or has another version or children.
	answered kind = iota
	// refused: nothing was done, and asking again does not help until somebody changes
	// something. An answer about the request whose number the driver does not know is one.
	refused
	// unknown: no answer came, or the server has a problem of its own, which passes. The
	// request may have been carried out.
	unknown
)

// kindOf returns the kind of an error, as the driver returned it.
func kindOf(err error) kind {
	among := func(all ...error) bool {
		return slices.ContainsFunc(all, func(one error) bool { return errors.Is(err, one) })
	}
	switch code := codeOf(err); {
	case err == nil, among(zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty):
		return answered
	case among(zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrInvalidPath, zk.ErrBadArguments,
		zk.ErrNoChildrenForEphemerals):
		return refused
	case code == notReadOnly || code == requestTimeout || code == throttled:
		return unknown
	case code == unimplemented || code <= firstAPIError:
		return refused
	}
	return unknown
}

// Numbers of errors for which the driver has no name. Those from -100 down are
// answers about the request; those above it are problems of the server.
const (
	unimplemented    = -6
	ephemeralOnLocal = -120
	firstAPIError    = -100
	notReadOnly      = -119
	requestTimeout   = -122
	throttled        = -127
)

// codeOf returns the number of an error for which the driver has no name; 0 if err is
// not such an error.
func codeOf(err error) (code int) {
	if err != nil {
		_, _ = fmt.Sscanf(err.Error(), "unknown error: %d", &code)
	}
	return code
}

func gone(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// refusal is an error that trying again does not remove.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// refusing returns a refusal that explains err.
func refusing(err error, format string, args ...any) error {
	return &refusal{fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))}
}

// failure turns an error from the driver into one for callers. Errors about a node stay
// as they are.
func (s *session) failure(err error) error {
	switch kindOf(err) {
	case answered:
		return err
	case refused:
		switch codeOf(err) {
		case unimplemented:
			err = fmt.Errorf("%w: it is older than ZooKeeper 3.5, which is the first to have container nodes: "+
				"update it", err)
		case ephemeralOnLocal:
			err = fmt.Errorf("%w: the servers have localSessionsEnabled and not localSessionsUpgradingEnabled, "+
				"and a lock is an ephemeral node, which needs a global session: "+
				"switch the second on, too, or the first off", err)
		}
		return &refusal{fmt.Errorf("zookeeper %s: %w", s.backend, err)}
	case unknown:
	}
	if s.isOver() {
		return s.over()
	}
	return fmt.Errorf("zookeeper: %w: %w", err, driver.ErrUnavailable)
}

// unanswered is the error of a caller whose context has ended before the answer came.
func unanswered(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("zookeeper: no answer in time: %w: %w", ctx.Err(), driver.ErrUnavailable)
	}
	return fmt.Errorf("zookeeper: given up before the answer: %w", ctx.Err())
}

// forbidden adds to a refusal what the service does not allow, and what to do. Other
// errors stay as they are.
func (s *session) forbidden(err error) error {
	prefix := s.backend.prefix
	switch {
	case !isRefusal(err):
		return err
	case errors.Is(err, zk.ErrNoAuth):
		return refusing(err, "it is not allowed to create nodes under %s: "+
			"check the credentials, and the ACL of that node or of its nearest parent", prefix)
	case errors.Is(err, zk.ErrAuthFailed):
		return refusing(err, "it refuses the credentials")
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return refusing(err, "there can be no nodes under %s, since it, or a node above it, ends with a session: "+
			"give another prefix", prefix)
	}
	return refusing(err, "it refuses to create nodes under %s", prefix)
}
