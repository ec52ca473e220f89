package kubernetes_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/castest"
	"github.com/golockers/locker/cas/kubernetes"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// verbs are what doc.go says.
var verbs = []string{"get", "create", "update", "list", "watch"}

// service is a cluster, and how to reach it.
type service struct {
	*lab.Kubernetes
	credentials string
}

func start(t *testing.T) service {
	lab.NeedProve(t)
	k := lab.StartKubernetes(t)
	return service{k, k.Account(t, "locks", "app", verbs...)}
}

func (k service) store(t conformance.T, addr string, client *http.Client) cas.Store {
	s, err := kubernetes.New("locks", &kubernetes.Options{
		Server: "https://" + addr, Credentials: k.credentials, Client: client, MinTTL: 100 * time.Millisecond,
	})
	check(t, err)
	return s
}

func (k service) backend(t conformance.T, addr string, client *http.Client) driver.Backend {
	b, err := cas.New(k.store(t, addr, client), nil)
	check(t, err)
	return b
}

func TestProveKubernetesStore(t *testing.T) {
	k := start(t)
	castest.Run(t, castest.Harness{
		New: func(t *testing.T) cas.Store { return k.store(t, k.Addr(), nil) },
		Cut: func(t *testing.T) (cas.Store, conformance.Fault) {
			w := lab.StartProxy(t, k.Addr())
			return k.store(t, w.Addr(), nil), w
		},
	})
}

func TestProveKubernetesConformance(t *testing.T) {
	k := start(t)
	host, port, err := net.SplitHostPort(k.Addr())
	require.NoError(t, err)
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	t.Cleanup(kubernetes.SetPod(k.credentials))
	conformance.Run(t, conformance.Harness{
		TTL: time.Second,
		New: func(ct conformance.T) driver.Backend { return k.backend(ct, k.Addr(), nil) },
		Pair: func(ct conformance.T) (a, b driver.Backend) { // with a client of the user's own
			transport := &http.Transport{TLSClientConfig: k.Certs.ClientConfig()}
			ct.Cleanup(transport.CloseIdleConnections)
			client := &http.Client{Transport: admin{transport}}
			return k.backend(ct, k.Addr(), client), k.backend(ct, k.Addr(), client)
		},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			w := lab.StartProxy(ct, k.Addr())
			return k.backend(ct, w.Addr(), nil), w
		},
		Delete: func(_ conformance.T, name string) {
			_ = k.Ask(http.MethodDelete, leases+"/"+kubernetes.Object(name), nil, nil)
		},
		Restart: func(conformance.T) { k.Restart(t) },
		Names:   []string{"..", "/", "a/b", "A", "a-", "-", "\x00", "é", "locker-a"},
		URL:     "kubernetes://?min_ttl=100ms", // as in a Pod
		Open:    conformance.OpenWith(kubernetes.Openers),
		Unproven: map[string]string{
			"clock-jump": "the clock of a static Go program is the system's own; no time of the server is asked for",
			"many": "an API server on a machine of two cores refuses a thousand writes beside hundreds of watches (429); " +
				"cas' own harness has the check",
		},
		KnownGoroutines: []string{"github.com/golockers/locker/internal/lab.(*Process).start.func1"}, // restarted
	})
}

func TestProveKubernetesListReadsAllPages(t *testing.T) {
	k := start(t)
	s := k.store(t, k.Addr(), nil)
	const records = 600 // 500 are on a page
	for i := range records {
		_, err := s.Swap(t.Context(), fmt.Sprintf("page-%03d", i), "", []byte("1"))
		require.NoError(t, err)
	}
	told := map[string]int{}
	for key, err := range s.List(t.Context(), "page-") {
		require.NoError(t, err)
		told[key]++
	}
	require.Len(t, told, records)
	for key, times := range told {
		require.Equal(t, 1, times, key)
	}
}

// While it starts, an API server says 403 to those that have every right.
func TestProveKubernetesARestartIsNoRefusal(t *testing.T) {
	k := start(t)
	s := k.store(t, k.Addr(), nil)
	version, err := s.Swap(t.Context(), "a", "", []byte("1"))
	require.NoError(t, err)
	forbidden := 0
	var asking sync.WaitGroup
	ctx, up := context.WithCancel(t.Context())
	asking.Go(func() {
		for i := 0; clock.Sleep(ctx, time.Millisecond) == nil; i++ {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			next, err := s.Swap(limited, "a", version, []byte(strconv.Itoa(i)))
			cancel()
			if err == nil {
				version = next
			} else if assert.NotErrorIs(t, err, driver.ErrRefused); strings.Contains(err.Error(), "answered 403") {
				assert.ErrorIs(t, err, cas.ErrUnwritten)
				forbidden++
			}
		}
	})
	k.Restart(t)
	up()
	asking.Wait()
	t.Logf("told %d times that it has no right", forbidden)
	_, err = s.Load(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(k.credentials, "token"))) // which is read anew
	_, err = s.Load(t.Context(), "a")
	require.ErrorIs(t, err, cas.ErrUnwritten)
	require.NotContains(t, err.Error(), "\n")
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	empty := t.TempDir()
	for url, is := range map[string]struct {
		error
		says string
	}{
		"kubernetes://locks":                                                 {driver.ErrInvalid, "kubectl proxy"},
		"kubernetes://?server=http://127.0.0.1:1":                            {driver.ErrInvalid, "name of a namespace"},
		"kubernetes://Locks?server=http://127.0.0.1:1":                       {driver.ErrInvalid, "name of a namespace"},
		"kubernetes://a,b?server=http://127.0.0.1:1":                         {driver.ErrInvalid, "kubernetes://namespace"},
		"kubernetes://locks/x?server=http://127.0.0.1:1":                     {driver.ErrInvalid, "kubernetes://namespace"},
		"kubernetes://locks?server=127.0.0.1:1":                              {driver.ErrInvalid, "https://host:port"},
		"kubernetes://locks?nonsense=1":                                      {driver.ErrInvalid, "credentials"},
		"kubernetes://locks?server=https://127.0.0.1:1&credentials=" + empty: {driver.ErrInvalid, "ca.crt"},
		"kubernetes://locks?server=http://127.0.0.1:1":                       {driver.ErrUnavailable, "refused"},
	} {
		_, err := locker.Open(t.Context(), url, nil, kubernetes.Openers)
		require.ErrorIs(t, err, is.error, url)
		require.ErrorContains(t, err, is.says, url)
	}
}

// A Lease in which many share is a line of a watch that is longer than a line should be.
func TestWatchTellsOfLongLines(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if assert.Equal(t, "true", r.URL.Query().Get("watch")) {
			_, _ = w.Write([]byte(strings.Repeat("x", 200<<10) + "\n"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	defer api.Close()
	s, err := kubernetes.New("locks", &kubernetes.Options{Server: api.URL})
	require.NoError(t, err)
	told := make(chan struct{}, 100)
	stop, err := s.Watch(t.Context(), "a", func() { told <- struct{}{} })
	require.NoError(t, err)
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Error("it was not told")
	}
	stop()
	require.NoError(t, s.Close())
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/locks/leases"

// admin has all rights.
type admin struct{ *http.Transport }

func (a admin) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+lab.AdminToken)
	return a.Transport.RoundTrip(r)
}

func check(t conformance.T, err error) {
	if err != nil {
		t.Errorf("%v", err)
		t.FailNow()
	}
}
