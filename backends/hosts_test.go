package backends_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
)

// Each service takes several hosts, of both kinds of addresses, with and without a port, and asks all of them. What
// answers here is no service: the URL is right, and the service is out of reach.
func TestSeveralHostsOfBothKinds(t *testing.T) {
	t.Parallel()
	for scheme, rest := range map[string]string{
		"postgres": "/db?sslmode=disable", "redis+sentinel": "/0?master_name=m", "redis+cluster": "", "redlock": "",
		"etcd": "", "zookeeper": "",
	} {
		for _, form := range []string{"[::1]:%d", "127.0.0.1:%d,127.0.0.1:%d", "[::1]:%d,[::1]:%d",
			"[::1]:%d,127.0.0.1:%d", "127.0.0.1:%d,[::1]:%d", "[::1]", "[::1],[::1]"} {
			t.Run(scheme+" "+form, func(t *testing.T) {
				t.Parallel()
				var ports []any
				var asked []*atomic.Bool
				for host := range strings.SplitSeq(form, ",") {
					if strings.HasSuffix(host, "%d") {
						l, err := net.Listen("tcp", strings.Replace(host, "%d", "0", 1))
						require.NoError(t, err)
						defer l.Close()
						was := new(atomic.Bool)
						go func() {
							for {
								conn, err := l.Accept()
								if err != nil {
									return
								}
								was.Store(true)
								_ = conn.Close()
							}
						}()
						ports, asked = append(ports, l.Addr().(*net.TCPAddr).Port), append(asked, was)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, err := backends.Open(ctx, scheme+"://"+fmt.Sprintf(form, ports...)+rest, nil)
					ended <- err
				}()
				for _, was := range asked {
					require.Eventually(t, was.Load, 10*time.Second, time.Millisecond, "a host was not asked")
				}
				if len(asked) > 0 {
					cancel()
				}
				err := <-ended
				require.Error(t, err)
				require.NotErrorIs(t, err, locker.ErrInvalid)
				if len(asked) == 0 {
					assert.NotContains(t, err.Error(), "missing port")
				}
			})
		}
	}
}
