package locker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Opener makes a backend from a URL. It reads the parameters that it knows from u,
// calls u.Check, and only then connects. It returns an error if the service is out of
// reach or refuses the client. opts are the settings of the future Client. The Client
// closes the backend.
type Opener func(ctx context.Context, u *URL, opts Options) (Backend, error)

// Openers maps URL schemes to backends. Every backend has a variable of this type
// with its own schemes, and package backends has one with all schemes:
//
//	client, err := backends.Openers.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil)
type Openers map[string]Opener

// Open makes a Client for the lock service at rawURL, whose form is
//
//	scheme://[user:password@][host:port[,host:port…]][/path][?parameter=value&…]
//
// These parameters are the same for every scheme, and override opts:
//
//	ttl         Options.TTL, as in 30s or 1m30s
//	max_hold    Options.MaxHold
//	patience    Options.Patience, or none
//	prefix      Options.Prefix
//	label       Options.Label
//	token_base  Options.TokenBase
//
// Two URLs with white space between them make one Client that locks on both services,
// first on the first one, during a move from one to the other (by package bridge,
// whose Openers have to be in o). Then prefix and token_base belong to their own URL;
// the other parameters apply to both, in whichever URL they stand.
//
// The scheme's package documents its other parameters. An unknown parameter, or one
// that is given twice, is an error. So is white space or an invisible character in or
// behind a URL, such as the line end of a file with a secret. ctx bounds only Open, and
// not the Client; if the service has not answered at the deadline of ctx, the error
// matches ErrUnavailable. Errors never contain the password.
func (o Openers) Open(ctx context.Context, rawURL string, opts *Options) (*Client, error) {
	c, err := o.open(ctx, rawURL, opts)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	return c, nil
}

func (o Openers) open(ctx context.Context, rawURL string, opts *Options) (*Client, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	for _, part := range u.Parts {
		part.openers = o
	}
	var merged Options
	if opts != nil {
		merged = *opts
	}
	merged.TTL = u.Duration("ttl", merged.TTL)
	merged.MaxHold = u.Duration("max_hold", merged.MaxHold)
	switch u.Param("patience", "") {
	case "none":
		merged.Patience = NoPatience
	case "0", "0s":
		u.fail("patience", "it has to be more than zero, or none")
	default:
		merged.Patience = u.Duration("patience", merged.Patience)
	}
	merged.Label = u.Param("label", merged.Label)
	if u.Parts == nil {
		merged.Prefix = u.Param("prefix", merged.Prefix)
		merged.TokenBase = u.Uint("token_base", merged.TokenBase)
	}
	b, err := o.backend(ctx, u, merged)
	if err != nil {
		return nil, err
	}
	if u.Parts != nil {
		merged.Prefix, merged.TokenBase = "", 0 // each part has its own
	}
	c := New(b, &merged)
	c.owned = true
	if err := errors.Join(u.Check(), c.checkTTL()); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return c, nil
}

// backend opens u with the settings of the future Client.
func (o Openers) backend(ctx context.Context, u *URL, opts Options) (Backend, error) {
	opener := o[u.Scheme]
	switch {
	case opener == nil && u.Parts != nil:
		return nil, fmt.Errorf("%w: backend URL: it is two URLs, and package bridge is not among the "+
			"Openers", ErrInvalid)
	case opener == nil:
		known := slices.Sorted(maps.Keys(o))
		known = slices.DeleteFunc(known, func(scheme string) bool { return scheme == pairScheme })
		return nil, fmt.Errorf("%w: backend URL: no backend for scheme %q: use one of %s", ErrInvalid,
			u.Scheme, strings.Join(known, ", "))
	}
	if u.err != nil {
		return nil, u.err
	}
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	b, err := opener(ctx, u, opts)
	if err != nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", err, ErrUnavailable) // it had the time, and did not answer
	}
	return b, fromBackend(ctx, err)
}

// Open opens one of the Parts of a pair, with the Openers that were asked to open the
// pair. It is for the Opener of a pair, which closes what it has opened if it fails.
func (u *URL) Open(ctx context.Context, opts Options) (Backend, error) {
	return u.openers.backend(ctx, u, opts)
}

// checkTTL reports a TTL outside the backend's bounds, before the first Lock would.
func (c *Client) checkTTL() error {
	_, err := c.settingsFor(nil)
	return err
}

// durationHint says in errors how to write a duration.
const durationHint = "write a duration such as 500ms, 30s or 1m30s"

// Duration returns the parameter as a duration of more than zero, or def if there is
// none.
func (u *URL) Duration(name string, def time.Duration) time.Duration {
	s := u.Param(name, "")
	if s == "" {
		return def
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		u.fail(name, durationHint)
		return def
	}
	if d <= 0 {
		u.fail(name, "it has to be more than zero")
		return def
	}
	return d
}

// URL is a backend's address, parsed for its [Opener]. Unlike [net/url.URL] it can
// have several hosts, and its parameters are strict: an Opener asks for each
// parameter that it knows, and [URL.Check] then reports unknown parameters and wrong
// values.
type URL struct {
	Scheme string
	User   *url.Userinfo // nil if there is none
	Hosts  []string      // host or host:port, IPv6 hosts in brackets; nil if there is none
	Path   string        // decoded, with its leading slash; "" if there is none

	// Parts are the two URLs of a pair; nil for every other URL.
	Parts   []*URL
	openers Openers // of a part

	// doubtful: what looks like hosts may be the start of a password with a ? in it.
	doubtful bool

	params url.Values
	known  []string
	lists  []string
	err    error // the first thing wrong with a parameter
}

// pairScheme is the scheme of two URLs in one string, which package bridge serves.
// Nobody writes it.
const pairScheme = "bridge"

// checkCharacters refuses what nobody sees, such as the line end of a secret's file:
// taken for a part of a prefix or a directory, it would make another lock (R27). A pair
// has white space between its URLs.
func checkCharacters(rawURL string, pair bool) error {
	n := 0
	for i, r := range rawURL {
		n++
		inside := 0 < i && i+utf8.RuneLen(r) < len(rawURL)
		kind := "an invisible character"
		switch {
		case r != ' ' && unicode.IsPrint(r), pair && inside && unicode.IsSpace(r):
			continue
		case r == ' ':
			kind = "a space"
		case r == '\n' || r == '\r':
			kind = "a line end"
		case unicode.IsControl(r):
			kind = "a control character"
		}
		return fmt.Errorf("%w: backend URL: character %d is %s (%U): remove it (a space that is meant is "+
			"%%20)", ErrInvalid, n, kind, r)
	}
	return nil
}

// parsePair takes two URLs with white space between them apart.
func parsePair(fields []string) (*URL, error) {
	if len(fields) > 2 {
		return nil, fmt.Errorf("%w: backend URL: it has %d parts with white space between them: write one "+
			"URL, or two while a fleet moves", ErrInvalid, len(fields))
	}
	u := &URL{Scheme: pairScheme}
	for _, field := range fields {
		part, err := ParseURL(field)
		if err != nil {
			return nil, err
		}
		u.Parts = append(u.Parts, part)
	}
	return u, nil
}

// ParseURL parses rawURL. Its error matches [ErrInvalid] and does not repeat rawURL,
// which may contain a password.
func ParseURL(rawURL string) (*URL, error) {
	fields := strings.Fields(rawURL)
	pair := len(fields) > 1 && strings.Count(rawURL, "://") > 1
	if err := checkCharacters(rawURL, pair); err != nil {
		return nil, err
	}
	if pair {
		return parsePair(fields)
	}
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || scheme == "" || strings.ContainsAny(scheme, ":/?#@") {
		return nil, fmt.Errorf("%w: backend URL: it has no scheme: write it like redis://localhost:6379 or "+
			"file:///var/lock/myapp", ErrInvalid)
	}
	u := &URL{Scheme: strings.ToLower(scheme)}
	if strings.Contains(rest, "#") {
		return nil, fmt.Errorf("%w: backend URL: %s:// has no fragment: write a # in a password or "+
			"parameter as %%23", ErrInvalid, u.Scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, slash := strings.Cut(rest, "/")
	if slash {
		p, err := url.PathUnescape("/" + path)
		if err != nil {
			return nil, fmt.Errorf("%w: backend URL: the path of the %s:// URL has a %% that is not "+
				"followed by two hexadecimal digits", ErrInvalid, u.Scheme)
		}
		u.Path = p
	}
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, err := parseUser(authority[:at])
		if err != nil {
			return nil, fmt.Errorf("%w: backend URL: user or password of the %s:// URL: %w", ErrInvalid,
				u.Scheme, err)
		}
		u.User, authority = user, authority[at+1:]
	}
	if authority != "" {
		u.Hosts = strings.Split(authority, ",")
		for i, h := range u.Hosts {
			// The error does not repeat the host: it may be the start of a password
			// with a character that had to be escaped.
			if err := checkHost(h); err != nil {
				return nil, fmt.Errorf("%w: backend URL: host %d of the %s:// URL: %w", ErrInvalid, i+1,
					u.Scheme, err)
			}
		}
	}
	if key, _, _ := strings.Cut(query, "="); u.Hosts != nil && strings.Contains(path, "@") ||
		strings.Contains(key, "@") {
		return nil, fmt.Errorf("%w: backend URL: %s:// has an @ after the host: write a / in a password as "+
			"%%2F, a ? as %%3F", ErrInvalid, u.Scheme)
	}
	u.doubtful = strings.Contains(query, "@")
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%w: backend URL: the parameters of the %s:// URL are not of the form "+
			"a=1&b=2, or have a %% or ; that has to be escaped", ErrInvalid, u.Scheme)
	}
	u.params = params
	if strings.ContainsFunc(u.Path+strings.Join(slices.Concat(slices.Collect(maps.Values(params))...),
		""), unicode.IsControl) {
		return nil, u.Invalid("its path or a parameter has a control character or line end in it: remove " +
			"what begins with %%0 or %%1")
	}
	return u, nil
}

func parseUser(s string) (*url.Userinfo, error) {
	name, password, has := strings.Cut(s, ":")
	name, err := url.PathUnescape(name)
	if err == nil {
		password, err = url.PathUnescape(password)
	}
	if err != nil || strings.ContainsAny(s, "/@,") {
		return nil, fmt.Errorf("escape what is special in it, as in p%%40ss for p@ss")
	}
	if !has {
		return url.User(name), nil
	}
	return url.UserPassword(name, password), nil
}

// checkHost accepts host, host:port, [IPv6] and [IPv6]:port.
func checkHost(h string) error {
	host, port := h, ""
	if rest, ok := strings.CutPrefix(h, "["); ok {
		host, port, ok = strings.Cut(rest, "]")
		if !ok || port != "" && port[0] != ':' {
			return fmt.Errorf("write an IPv6 address as [::1] or [::1]:6379")
		}
		port = strings.TrimPrefix(port, ":")
	} else if i := strings.IndexByte(h, ':'); i >= 0 {
		host, port = h[:i], h[i+1:]
		if port == "" {
			return fmt.Errorf("the port is missing after the colon")
		}
		if strings.Contains(port, ":") {
			return fmt.Errorf("write an IPv6 address in brackets, and several hosts with commas between them")
		}
	}
	if host == "" {
		return fmt.Errorf("it is empty")
	}
	if strings.ContainsAny(host, "%\\\"<>") {
		return fmt.Errorf("it has a character that no host name has")
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return fmt.Errorf("the port is not a number from 1 to 65535")
	}
	return nil
}

// String returns the URL without user, password and parameters, for messages: in a
// mistyped URL, a part of the password can look like any of them.
func (u *URL) String() string {
	if u.Parts != nil {
		return u.Parts[0].String() + " " + u.Parts[1].String()
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		b.WriteString("***@")
	}
	if u.doubtful {
		b.WriteString("***")
		return b.String()
	}
	b.WriteString(strings.Join(u.Hosts, ","))
	b.WriteString((&url.URL{Path: u.Path}).EscapedPath())
	return b.String()
}

// Param returns the parameter, or def if there is none. In a pair, either URL may
// have it, or both with the same value.
func (u *URL) Param(name, def string) string {
	if u.Parts != nil {
		first, second := u.Parts[0].Param(name, ""), u.Parts[1].Param(name, "")
		if first != "" && second != "" && first != second {
			u.fail(name, "the two URLs differ in it: write it once")
		}
		return cmp.Or(first, second, def)
	}
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

// List returns the values of a parameter that may occur more than once.
func (u *URL) List(name string) []string {
	u.known, u.lists = append(u.known, name), append(u.lists, name)
	return u.params[name]
}

// Uint returns the parameter as a whole number of zero or more, or def.
func (u *URL) Uint(name string, def uint64) uint64 {
	s := u.Param(name, "")
	if s == "" {
		return def
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		u.fail(name, "write a whole number of zero or more")
		return def
	}
	return n
}

// Bool returns the parameter as a switch, or def.
func (u *URL) Bool(name string, def bool) bool {
	switch s := u.Param(name, ""); s {
	case "":
		return def
	case "on", "true", "yes", "1":
		return true
	case "off", "false", "no", "0":
		return false
	default:
		u.fail(name, "write on or off")
		return def
	}
}

// mayBeSecret reports whether an unknown parameter may be a part of a password: of one
// with a ? in it, or of one that is a parameter and has an & in it.
func (u *URL) mayBeSecret(name string) bool {
	for other := range u.params {
		if other = strings.ToLower(other); strings.Contains(other, "pass") || strings.Contains(other,
			"auth") {
			return true
		}
	}
	return u.doubtful || len(name) > 20 || strings.Trim(strings.ToLower(name),
		"abcdefghijklmnopqrstuvwxyz_") != ""
}

func (u *URL) fail(name, hint string) {
	if u.err == nil {
		u.err = u.Invalid("parameter %s: %s", name, hint)
	}
}

// Check returns an error if a parameter has a wrong value, occurs twice, or was not
// asked for so far. The error matches [ErrInvalid]. Openers call Check when they have
// asked for every parameter that they know.
func (u *URL) Check() error {
	for _, p := range u.Parts {
		if err := p.Check(); err != nil {
			return err
		}
	}
	for name, values := range u.params {
		if !slices.Contains(u.known, name) {
			slices.Sort(u.known)
			known := strings.Join(slices.Compact(u.known), ", ")
			if values[0] == "" || u.mayBeSecret(name) {
				return u.Invalid("it has an unknown parameter: the known ones are %s", known)
			}
			return u.Invalid("unknown parameter %q: the known ones are %s", name, known)
		}
		if len(values) > 1 && !slices.Contains(u.lists, name) {
			return u.Invalid("parameter %q is given %d times: give it once", name, len(values))
		}
	}
	return u.err
}

// TLSConfig returns the configuration for a scheme with TLS. These parameters are the
// same for all such schemes:
//
//	ca           a PEM file with the authorities to trust; default: those of the system
//	cert, key    PEM files with the client's certificate and its key
//	server_name  the name to expect in the server's certificate; default: the host
//
// The files of cert and key are read again for each connection, that of ca once. Its
// error matches [ErrInvalid].
func (u *URL) TLSConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Param("server_name", "")}
	ca, cert, key := u.Param("ca", ""), u.Param("cert", ""), u.Param("key", "")
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, u.Invalid("ca: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, u.Invalid("ca: %s has no PEM certificate in it", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, u.Invalid("cert and key go together: give both or none")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, u.Invalid("cert and key: %v", err)
		}
		// The files are read again for each connection, so that a certificate can be
		// replaced while the program runs.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if now, err := tls.LoadX509KeyPair(cert, key); err == nil {
				return &now, nil
			}
			return &pair, nil // one of the files was replaced, and the other is next
		}
	}
	return config, nil
}

// Invalid returns an error that says what is wrong with the URL. The error names the
// URL, without password and parameters, and matches [ErrInvalid].
func (u *URL) Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: backend URL: %s: %s", ErrInvalid, u, fmt.Sprintf(format, args...))
}
