package kubernetes

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// Options say how to reach the API server. The zero value is for a Pod.
type Options struct {
	// Client sends the requests, with credentials of its own. It must not repeat a request whose reply
	// was lost: the second copy of a write would conflict with the first. Each name with waiters takes
	// a connection for its watch, so a Client with MaxConnsPerHost may have none left for requests.
	// nil: one with the Credentials.
	Client *http.Client

	// Server is the API server, as in https://10.0.0.1:443. "": from the Pod's environment.
	Server string

	// Credentials is a directory with the files token and ca.crt, used without a Client. "": the Pod's
	// or, with a Server, none.
	Credentials string

	// MinTTL is the shortest TTL of a lock. 0: 10 s, because each renewal writes to the cluster's etcd.
	MinTTL time.Duration
}

const minTTL = 10 * time.Second

// podCredentials is where a Pod has the credentials of its ServiceAccount.
var podCredentials = "/var/run/secrets/kubernetes.io/serviceaccount"

// What marks a Lease of ours.
const (
	managedBy  = "app.kubernetes.io/managed-by"
	manager    = "locker"
	nameNote   = "golockers.github.io/name"
	recordNote = "golockers.github.io/record"
)

// maxValue is the limit of an object's annotations, less our others, in base64.
const maxValue = (256<<10 - 4<<10) / 4 * 3

// Store is a [cas.Store] on the Lease objects of a namespace.
type Store struct {
	client    http.Client
	leases    string // their URL
	namespace string
	minTTL    time.Duration
	served    atomic.Bool // it has had all rights
}

// New returns the Store of a namespace. It makes no request. namespace "" is the Pod's own.
func New(namespace string, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Server == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return nil, fmt.Errorf("%w: this is not a Pod of a Kubernetes cluster: KUBERNETES_SERVICE_HOST and "+
				"KUBERNETES_SERVICE_PORT are not set: elsewhere, run kubectl proxy and add ?server=http://127.0.0.1:8001",
				driver.ErrInvalid)
		}
		o.Server = "https://" + net.JoinHostPort(host, port)
		o.Credentials = cmp.Or(o.Credentials, podCredentials)
	}
	if namespace == "" && o.Credentials != "" {
		text, err := os.ReadFile(filepath.Join(o.Credentials, "namespace"))
		if err != nil {
			return nil, fmt.Errorf("%w: the Pod's namespace: %w", driver.ErrInvalid, err)
		}
		namespace = strings.TrimSpace(string(text))
	}
	server, err := url.Parse(o.Server)
	switch {
	case err != nil || server.Host == "" || server.Scheme != "https" && server.Scheme != "http":
		return nil, fmt.Errorf("%w: the API server is written as https://host:port", driver.ErrInvalid)
	case namespace == "" || strings.Trim(namespace, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return nil, fmt.Errorf("%w: %q is not the name of a namespace", driver.ErrInvalid, namespace)
	case o.Client == nil:
		if o.Client, err = newClient(o.Credentials); err != nil {
			return nil, fmt.Errorf("%w: credentials: %w", driver.ErrInvalid, err)
		}
	}
	s := &Store{client: *o.Client, namespace: namespace, minTTL: cmp.Or(o.MinTTL, minTTL)}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.leases = server.JoinPath("apis/coordination.k8s.io/v1/namespaces", namespace, "leases").String()
	return s, nil
}

// newClient trusts the authority in dir and sends its token; "": neither.
func newClient(dir string) (*http.Client, error) {
	// HTTP/1.1: a connection that goes silent costs only its one request.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{Protocols: protocols, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second}
	if dir == "" {
		return &http.Client{Transport: t}, nil
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate in it", filepath.Join(dir, "ca.crt"))
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	b := &bearer{t, filepath.Join(dir, "token")}
	_, err = b.token()
	return &http.Client{Transport: b}, err
}

// bearer adds the token of a file, which the cluster renews every hour or so.
type bearer struct {
	*http.Transport
	file string
}

func (b *bearer) token() (string, error) {
	text, err := os.ReadFile(b.file)
	return strings.TrimSpace(string(text)), err
}

// RoundTrip sends the request with the current token.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.token()
	if err != nil {
		return nil, fmt.Errorf("credentials: %w: %w", err, cas.ErrUnwritten)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.Transport.RoundTrip(r)
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// Promises says what can be known about a cluster from here: neither where its API servers keep their
// data nor how many there are.
func (s *Store) Promises() cas.Promises {
	return cas.Promises{
		Backend:         "kubernetes",
		Scope:           driver.ScopeNetwork,
		Exclusion:       driver.ExclusionServer,
		Fencing:         driver.FencingWhileKept,
		SurvivesRestart: true,
		RestsOn: "an API server whose etcd keeps what it has confirmed (several of them over an etcd of three survive the " +
			"loss of one, which cannot be asked and is not claimed)",
		MinTTL:   s.minTTL,
		MaxValue: maxValue,
	}
}

// Guarantees are those of every Backend of this package, except for the MinTTL that its user chooses.
func Guarantees() driver.Guarantees { return (&Store{minTTL: minTTL}).Promises().Guarantees() }

// lease has the fields of a Lease object that matter here.
type lease struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

type metadata struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

func newLease(m metadata) lease { return lease{"coordination.k8s.io/v1", "Lease", m} }

// version names one write of one object: an update with only a resourceVersion would create a missing
// object, while one with the object's UID fails.
func (m metadata) version() string { return m.ResourceVersion + "/" + m.UID }

var unreadable = regexp.MustCompile(`[^a-z0-9]+`)

// object returns the name of a lock's Lease: a recognizable part of the key, and a hash of all of it,
// because a key may be longer than an object's name.
func object(key string) string {
	sum := sha256.Sum256([]byte(key))
	readable := unreadable.ReplaceAllString(strings.ToLower(key), "-")
	return fmt.Sprintf("locker-%s-%x", readable[:min(len(readable), 60)], sum[:20])
}

// Load is [cas.Store].
func (s *Store) Load(ctx context.Context, key string) (cas.Entry, error) {
	var found lease
	err := s.ask(ctx, "get", "/"+object(key), nil, &found)
	if errors.Is(err, errNotFound) {
		return cas.Entry{}, nil
	}
	if err != nil {
		return cas.Entry{}, err
	}
	notes := found.Metadata.Annotations
	record, has := notes[recordNote]
	value, err := base64.StdEncoding.DecodeString(record)
	if err != nil || !has || notes[nameNote] != key {
		return cas.Entry{}, fmt.Errorf("the Lease %s in namespace %s does not belong to the lock: %w", object(key),
			s.namespace, driver.ErrRefused)
	}
	return cas.Entry{Value: value, Version: found.Metadata.version()}, nil
}

// Swap is [cas.Store].
func (s *Store) Swap(ctx context.Context, key, version string, value []byte) (string, error) {
	resourceVersion, uid, _ := strings.Cut(version, "/")
	next := newLease(metadata{
		Name:            object(key),
		UID:             uid,
		ResourceVersion: resourceVersion,
		Labels:          map[string]string{managedBy: manager},
		Annotations:     map[string]string{nameNote: key, recordNote: base64.StdEncoding.EncodeToString(value)},
	})
	verb, path := "update", "/"+next.Metadata.Name
	if version == "" {
		verb, path = "create", ""
	}
	if err := s.ask(ctx, verb, path, &next, &next); err != nil {
		return "", err
	}
	s.served.Store(true)
	return next.Metadata.version(), nil
}

// List is [cas.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		query := url.Values{"labelSelector": {managedBy + "=" + manager}, "limit": {"500"}}
		for {
			var page struct {
				Metadata struct{ Continue string }
				Items    []lease
			}
			if err := s.ask(ctx, "list", "?"+query.Encode(), nil, &page); err != nil {
				yield("", err)
				return
			}
			for _, found := range page.Items {
				name, ours := found.Metadata.Annotations[nameNote]
				if ours && strings.HasPrefix(name, prefix) && !yield(name, nil) {
					return
				}
			}
			if page.Metadata.Continue == "" {
				return
			}
			query.Set("continue", page.Metadata.Continue)
		}
	}
}

// Watch is [cas.Watcher]. Each name has a connection of its own.
func (s *Store) Watch(ctx context.Context, key string, changed func()) (func(), error) {
	query := url.Values{"watch": {"true"}, "fieldSelector": {"metadata.name=" + object(key)}}.Encode()
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	begun := context.AfterFunc(ctx, stop)
	stream, err := s.send(life, "watch", "?"+query, nil)
	if !begun() || err != nil {
		stop()
		return nil, cmp.Or(err, ctx.Err())
	}
	go func() {
		for life.Err() == nil {
			if err == nil { // the current object, then each change, one per line
				for lines := bufio.NewReader(stream); ; {
					_, err := lines.ReadSlice('\n')
					if errors.Is(err, bufio.ErrBufferFull) {
						continue // with the rest of a long line
					} else if err != nil {
						break
					}
					changed()
				}
				_ = stream.Close()
			}
			// The API server ends every watch after an hour. The next one reports what has changed
			// meanwhile, but not a deletion.
			_ = clock.Sleep(life, time.Second)
			if stream, err = s.send(life, "watch", "?"+query, nil); err == nil {
				changed()
			}
		}
	}()
	return stop, nil
}

// methods are the HTTP methods of the verbs in Roles.
var methods = map[string]string{"get": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut,
	"list": http.MethodGet, "watch": http.MethodGet}

// ask sends a request and reads the whole answer.
func (s *Store) ask(ctx context.Context, verb, path string, body *lease, into any) error {
	answer, err := s.send(ctx, verb, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	if err = json.NewDecoder(answer).Decode(into); err != nil {
		return fmt.Errorf("the API server's answer: %w", err)
	}
	_, err = io.Copy(io.Discard, answer) // or the connection would not be reused
	return err
}

// send sends a request. An answer other than success is an error.
func (s *Store) send(ctx context.Context, verb, path string, body *lease) (io.ReadCloser, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, methods[verb], s.leases+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
			err = fmt.Errorf("%w: %w", err, cas.ErrUnwritten)
		}
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	var said struct{ Message string }
	_ = json.NewDecoder(resp.Body).Decode(&said)
	return nil, s.refusal(resp.StatusCode, verb, said.Message)
}

// errNotFound is for an object, or for the namespace of a new object.
var errNotFound = errors.New("not found")

// refusal is the error for an answer other than success. A refused request was not written; the outcome
// of a fault (5xx) is unknown.
func (s *Store) refusal(code int, verb, message string) error {
	err := fmt.Errorf("the API server answered %d: %s", code, cmp.Or(message, http.StatusText(code)))
	switch {
	case code >= 500:
		return err
	case code == http.StatusConflict:
		return fmt.Errorf("%w: %w", err, cas.ErrConflict)
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", err, cas.ErrUnwritten)
	case code == http.StatusNotFound:
		err = fmt.Errorf("%w: %w", err, errNotFound)
	case code == http.StatusForbidden && strings.Contains(message, "cannot "+verb):
		err = fmt.Errorf("%w: the Role in namespace %s needs a rule with apiGroups [coordination.k8s.io], "+
			"resources [leases], verbs [%s]", err, s.namespace, verb)
	case code == http.StatusUnauthorized:
		err = fmt.Errorf("%w: its token is not, or no longer, valid in this cluster", err)
	}
	if s.served.Load() && (code == http.StatusForbidden || code == http.StatusUnauthorized) {
		// An API server that has just started refuses everybody until it has read the permissions.
		return fmt.Errorf("%w: %w", err, cas.ErrUnwritten)
	}
	return fmt.Errorf("%w: %w: %w", err, driver.ErrRefused, cas.ErrUnwritten)
}
