package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/driver"
)

// Store is a [cas.Store] on a key-value bucket.
type Store struct {
	conn     *nats.Conn
	bucket   string
	promises cas.Promises
	owned    bool // the connection

	mu       sync.Mutex
	served   time.Time // when a request last got service
	unserved time.Time // when the first request since then got none; zero: never
}

// silence is the time without service after which a connection is given up.
const silence = 2 * time.Second

// The codes of the server's errors.
const (
	codeUnavailable     = 10008 // also from a server that is cut off from the others
	codeNoMessage       = 10037
	codeNoStream        = 10059
	codeConflict        = 10071
	codeConflictPending = 10164 // with a write in flight
)

// stream has the fields of a bucket's stream that matter here.
type stream struct {
	Config struct {
		Subjects    []string
		Storage     string
		Discard     string
		PersistMode string          `json:"persist_mode"`
		Replicas    int             `json:"num_replicas"`
		MaxAge      int64           `json:"max_age"`
		MaxMsgs     int64           `json:"max_msgs"`
		MaxBytes    int64           `json:"max_bytes"`
		MaxMsgSize  int             `json:"max_msg_size"`
		Mirror      json.RawMessage `json:"mirror"`
		Sources     json.RawMessage `json:"sources"`
	}
	State struct{ Subjects map[string]int }
	Total int
}

// New returns the Store of a bucket, after asking the server about it. The caller owns the connection
// and closes it.
func New(ctx context.Context, conn *nats.Conn, bucket string) (*Store, error) {
	if bucket == "" || strings.ContainsAny(bucket, ".*>/ \t") {
		return nil, fmt.Errorf("%w: %q is not the name of a bucket", driver.ErrInvalid, bucket)
	}
	s := &Store{conn: conn, bucket: bucket}
	var is stream
	err := s.ask(ctx, s.api("STREAM.INFO"), nil, nil, &is)
	if said := new(apiError); errors.As(err, &said) && said.Code == codeNoStream {
		err = fmt.Errorf("%w: create the bucket with nats kv add %s --replicas=3: %w", err, bucket, driver.ErrRefused)
	}
	if err != nil {
		return nil, err
	}
	c := is.Config
	for why, bad := range map[string]bool{
		"it is a mirror, or has sources: its reads may be stale":   c.Mirror != nil || c.Sources != nil,
		"its records end after a time (--ttl)":                     c.MaxAge > 0,
		"it drops old records for new ones":                        c.MaxMsgs > 0 || c.MaxBytes > 0 && c.Discard != "new",
		"it confirms what it has not written (persist_mode async)": c.PersistMode == "async",
		"it takes no records of 4096 bytes":                        c.MaxMsgSize > 0 && c.MaxMsgSize < 5<<10,
	} {
		if bad {
			return nil, fmt.Errorf("bucket %s cannot keep locks: %s: %w", bucket, why, driver.ErrRefused)
		}
	}
	s.promises = cas.Promises{
		Backend:          "nats",
		Scope:            driver.ScopeNetwork,
		Exclusion:        driver.ExclusionServer,
		Fencing:          driver.FencingWhileKept,
		ServerCrashes:    (c.Replicas - 1) / 2,
		SurvivesRestart:  c.Storage == "file",
		SurvivesFailover: c.Replicas > 1,
		RestsOn: "NATS servers that keep what they have confirmed (they sync their disks later, unless sync_interval is " +
			"always: a machine that loses power forgets)",
		MaxValue: int(conn.MaxPayload()) - 1<<10,
	}
	if c.Replicas > 1 {
		s.promises.Exclusion = driver.ExclusionConsensus
	}
	if c.MaxMsgSize > 0 {
		s.promises.MaxValue = min(s.promises.MaxValue, c.MaxMsgSize-1<<10)
	}
	return s, nil
}

// Promises is [cas.Store].
func (s *Store) Promises() cas.Promises { return s.promises }

// Close closes the connection if the Store has made it.
func (s *Store) Close() error {
	if s.owned {
		s.conn.Close()
	}
	return nil
}

// api returns the subject of a request about the bucket's stream.
func (s *Store) api(request string) string { return "$JS.API." + request + ".KV_" + s.bucket }

// prefix is the common prefix of the subjects of all records.
func (s *Store) prefix() string { return "$KV." + s.bucket + "." }

// escape completes QueryEscape: everything but letters, digits, - and _ becomes = and hexadecimal
// digits.
var escape = strings.NewReplacer("%", "=", "+", "=20", ".", "=2E", "~", "=7E")

// subject returns the subject of a key.
func (s *Store) subject(key string) string { return s.prefix() + escape.Replace(url.QueryEscape(key)) }

// key returns the key of a subject.
func (s *Store) key(subject string) (string, error) {
	return url.PathUnescape(strings.ReplaceAll(strings.TrimPrefix(subject, s.prefix()), "=", "%"))
}

// Load is [cas.Store]. It asks the stream's leader: the usual requests to a bucket may be answered by a
// replica that lags behind.
func (s *Store) Load(ctx context.Context, key string) (cas.Entry, error) {
	var got struct {
		Message struct {
			Seq  uint64
			Data []byte
		}
	}
	body, err := json.Marshal(map[string]string{"last_by_subj": s.subject(key)})
	if err != nil {
		return cas.Entry{}, err
	}
	var said *apiError
	err = s.ask(ctx, s.api("STREAM.MSG.GET"), nil, body, &got)
	if errors.As(err, &said) && said.Code == codeNoMessage {
		return cas.Entry{}, nil
	}
	if err != nil {
		return cas.Entry{}, err
	}
	return cas.Entry{Value: got.Message.Data, Version: strconv.FormatUint(got.Message.Seq, 10)}, nil
}

// Swap is [cas.Store].
func (s *Store) Swap(ctx context.Context, key, version string, value []byte) (string, error) {
	if version == "" {
		version = "0"
	}
	header := nats.Header{nats.ExpectedLastSubjSeqHdr: {version}, nats.ExpectedStreamHdr: {"KV_" + s.bucket}}
	var written struct{ Seq uint64 }
	err := s.ask(ctx, s.subject(key), header, value, &written)
	return strconv.FormatUint(written.Seq, 10), err
}

// List is [cas.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for seen, more := 0, true; more; {
			var page stream
			body := fmt.Sprintf(`{"subjects_filter":%q,"offset":%d}`, s.prefix()+">", seen)
			if err := s.ask(ctx, s.api("STREAM.INFO"), nil, []byte(body), &page); err != nil {
				yield("", err)
				return
			}
			for subject := range page.State.Subjects {
				if key, err := s.key(subject); err == nil && strings.HasPrefix(key, prefix) && !yield(key, nil) {
					return
				}
			}
			seen += len(page.State.Subjects)
			more = seen < page.Total && len(page.State.Subjects) > 0
		}
	}
}

// apiError is an error that the server returns instead of a result.
type apiError struct {
	Status      int `json:"code"`
	Code        int `json:"err_code"`
	Description string
}

func (e *apiError) Error() string { return "the server answered: " + e.Description }

// ask sends a request and reads the answer. The outcome of a request that ended with a fault (5xx) is
// unknown.
func (s *Store) ask(ctx context.Context, subject string, header nats.Header, body []byte, into any) error {
	if s.conn.IsClosed() {
		return fmt.Errorf("%w: %w", nats.ErrConnectionClosed, cas.ErrUnwritten)
	}
	sent, reconnects, before := time.Now(), s.conn.Stats().Reconnects, s.conn.LastError()
	msg, err := s.conn.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: header, Data: body})
	if err != nil {
		err = s.failure(subject, err, before)
		none := errors.Is(err, nats.ErrNoResponders)
		silent := errors.Is(err, context.DeadlineExceeded) && time.Since(sent) >= silence
		if (none || silent && !errors.Is(err, driver.ErrRefused)) && s.conn.Stats().Reconnects == reconnects {
			s.gotNone(sent)
		}
		return err
	}
	var said struct{ Error *apiError }
	if err = json.Unmarshal(msg.Data, &said); err == nil && said.Error == nil {
		err = json.Unmarshal(msg.Data, into)
	}
	if e := said.Error; e != nil && e.Code == codeUnavailable {
		s.gotNone(sent)
	} else {
		s.mu.Lock()
		s.served, s.unserved = time.Now(), time.Time{}
		s.mu.Unlock()
	}
	switch e := said.Error; {
	case err != nil:
		return fmt.Errorf("the server's answer: %w", err)
	case e == nil:
		return nil
	case e.Code == codeConflict || e.Code == codeConflictPending:
		return fmt.Errorf("%w: %w", e, cas.ErrConflict)
	case e.Status >= 500 || e.Code == codeNoStream: // a server that has just started knows no stream
		return e
	default:
		return fmt.Errorf("%w: %w: %w", e, driver.ErrRefused, cas.ErrUnwritten)
	}
}

// gotNone gives up the Store's own connection if no request gets service: nothing arrives on it, or its
// server is cut off from the others. All requests in flight on it end with an unknown outcome, so one
// unanswered request is no reason while others are answered.
func (s *Store) gotNone(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served.After(sent) || !s.owned {
		return
	}
	if s.unserved.IsZero() || sent.Before(s.unserved) {
		s.unserved = sent
	}
	if time.Since(s.unserved) >= silence {
		s.unserved = time.Time{}
		_ = s.conn.ForceReconnect()
	}
}

// failure is the error of a request without an answer; last is the connection's latest error before it.
// A request that was sent may also get ErrConnectionClosed: all that wait for an answer do when the
// connection is closed or forced to reconnect.
func (s *Store) failure(subject string, err, before error) error {
	last := s.conn.LastError()
	switch {
	case !errors.Is(last, before) && errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), `"`+subject+`"`):
		// The server reports it separately, and the request times out.
		return fmt.Errorf("the user lacks a permission: %w: %w: %w", last, driver.ErrRefused, cas.ErrUnwritten)
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%w: %w", err, cas.ErrUnwritten)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: JetStream is not enabled, or the bucket has no leader", err)
	}
	return err
}
