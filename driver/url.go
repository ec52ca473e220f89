package driver

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// URL is a backend's address, parsed for its [Opener]. Unlike [net/url.URL] it can
// have several hosts, and its parameters are strict: an Opener asks for each
// parameter that it knows, and [URL.Check] then reports unknown parameters and wrong
// values.
type URL struct {
	Scheme string
	User   *url.Userinfo // nil if there is none
	Hosts  []string      // host or host:port, IPv6 hosts in brackets; nil if there is none
	Path   string        // decoded, with its leading slash; "" if there is none

	params url.Values
	order  []string // the names of the parameters
	known  []string
	err    error // the first error in a parameter
}

// Duration returns the parameter as a duration greater than zero, or def if it is absent.
func (u *URL) Duration(name string, def time.Duration) time.Duration {
	s := u.Param(name, "")
	d, err := clock.ParseDuration(s)
	switch {
	case s == "":
	case err != nil:
		u.fail(name, err.Error())
	case d <= 0:
		u.fail(name, "it must be more than zero")
	default:
		return d
	}
	return def
}

// String returns the URL without user, password and parameters, for messages: in a mistyped URL, part
// of the password can look like any of them.
func (u *URL) String() string {
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		b.WriteString("***@")
	}
	b.WriteString(strings.Join(u.Hosts, ","))
	b.WriteString((&url.URL{Path: u.Path}).EscapedPath())
	return b.String()
}

// Param returns the parameter, or def if it is absent.
func (u *URL) Param(name, def string) string {
	u.known = append(u.known, name)
	v, ok := u.params[name]
	if !ok {
		return def
	}
	if v[0] == "" {
		u.fail(name, "it has no value")
	}
	return v[0]
}

// Uint returns the parameter as a whole number of zero or more, or def if it is absent.
func (u *URL) Uint(name string, def uint64) uint64 {
	s := u.Param(name, "")
	n, err := strconv.ParseUint(s, 10, 64)
	if err == nil {
		return n
	}
	if s != "" {
		u.fail(name, "write a whole number of zero or more")
	}
	return def
}

// Bool returns the parameter as a switch, or def if it is absent.
func (u *URL) Bool(name string, def bool) bool {
	switch u.Param(name, "") {
	case "":
	case "on", "true", "yes", "1":
		return true
	case "off", "false", "no", "0":
		return false
	default:
		u.fail(name, "write on or off")
	}
	return def
}

// Err returns the first error in the parameters read so far. It is for locker.Open; an Opener calls
// Check.
func (u *URL) Err() error { return u.err }

func (u *URL) fail(name, hint string) {
	if u.err == nil {
		u.err = u.Invalid("parameter %s: %s", name, hint)
	}
}

// Check returns an error if a parameter has a wrong value, occurs twice, or has not been read. The
// error matches [ErrInvalid]. Openers call Check when they have read every parameter that they know.
func (u *URL) Check() error {
	for i, name := range u.order {
		if !slices.Contains(u.known, name) {
			slices.Sort(u.known)
			// Do not repeat it: it may be the rest of a password with an & in it.
			return u.Invalid("unknown parameter, number %d: the known ones are %s", i+1,
				strings.Join(slices.Compact(u.known), ", "))
		}
		if n := len(u.params[name]); n > 1 {
			return u.Invalid("parameter %q is given %d times: give it once", name, n)
		}
	}
	return u.err
}

// Invalid returns an error that says what is wrong with the URL. It includes the URL without password
// and parameters, and matches [ErrInvalid].
func (u *URL) Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: backend URL: %s: %s", ErrInvalid, u, fmt.Sprintf(format, args...))
}
