package redisnode

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/tlsurl"
)

// DialTimeout bounds connecting to a server by a client of [FromURL].
const DialTimeout = 2 * time.Second

// FromURL is what a URL says about the connections to its hosts, which have this port if they name none: the
// database is in db, or "" for the first. A request waits for its answer for up to timeout.
func FromURL(u *driver.URL, port, db string, secure bool, timeout time.Duration) (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
		// The lock has time limits and repetitions of its own, which know what is safe.
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		DialTimeout:           DialTimeout,
		DialerRetries:         1,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
	}
	for _, a := range u.Hosts {
		if _, _, err := net.SplitHostPort(a); err != nil {
			a = net.JoinHostPort(strings.Trim(a, "[]"), port)
		}
		o.Addrs = append(o.Addrs, a)
	}
	if u.User != nil {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	if db != "" {
		n, err := strconv.ParseUint(db, 10, 16)
		if err != nil {
			return nil, u.Invalid("the database is not a number: write %s://host:%s/0", u.Scheme, port)
		}
		o.DB = int(n)
	}
	if secure {
		config, err := tlsurl.Config(u)
		if err != nil {
			return nil, err
		}
		o.TLSConfig = config
	}
	o.Dialer = Dialer(o.TLSConfig, DialTimeout, o.Addrs...)
	return o, nil
}
