package znode

import (
	"errors"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Kind is what an error of the driver says about a request (R17).
type Kind int

const (
	// Done: there is no error.
	Done Kind = iota
	// Node: the service's answer about a node that is there or is not, or has
	// another version or children. Nothing was done.
	Node
	// Refused: nothing was done, and asking again does not help until somebody
	// changes something. An error whose number the driver does not know is one.
	Refused
	// Unsent: the driver found no server for the request.
	Unsent
	// Unknown: no answer came, or one of a server that has a problem of its own,
	// which passes. The request may have been carried out.
	Unknown
)

// KindOf sorts an error of the driver, as the driver returned it.
func KindOf(err error) Kind {
	if err == nil {
		return Done
	}
	for kind, all := range map[Kind][]error{
		Node: {zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty},
		Refused: {
			zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrInvalidPath, zk.ErrBadArguments,
			zk.ErrNoChildrenForEphemerals,
		},
		Unsent: {zk.ErrNoServer},
	} {
		for _, one := range all {
			if errors.Is(err, one) {
				return kind
			}
		}
	}
	switch code := Code(err); {
	case code == notReadOnly || code == requestTimeout || code == throttled:
		return Unknown
	case code == Unimplemented || code <= firstAPIError:
		return Refused
	}
	return Unknown
}

// Numbers of errors for which the driver has no name. Those from -100 on are
// answers about the request; those before it are problems of the server.
const (
	Unimplemented    = -6
	EphemeralOnLocal = -120
	firstAPIError    = -100
	notReadOnly      = -119
	requestTimeout   = -122
	throttled        = -127
)

// Code returns the number of an error that the driver has no name for; 0 if err
// is not such an error.
func Code(err error) int {
	if err == nil {
		return 0
	}
	text, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	if !ok {
		return 0
	}
	code, _ := strconv.Atoi(text)
	return code
}
