package locker

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// checkCharacters refuses what nobody sees, such as the line end of a secret's file:
// taken for a part of a prefix or a directory, it would make another lock (R27).
func checkCharacters(rawURL string) error {
	n := 0
	for _, r := range rawURL {
		n++
		kind, meant := "an invisible character", "a space that is meant is %20"
		switch {
		case r != ' ' && unicode.IsPrint(r):
			continue
		case r == ' ':
			kind = "a space"
		case r == '\n' || r == '\r':
			kind = "a line end"
		case unicode.IsControl(r):
			kind = "a control character"
		}
		if strings.Count(rawURL, "://") > 1 {
			meant += ", and two URLs are for the Openers of package bridge"
		}
		return fmt.Errorf("%w: backend URL: character %d is %s (%U): remove it (%s)", ErrInvalid, n, kind, r,
			meant)
	}
	return nil
}

// ParseURL parses rawURL. Its error matches [ErrInvalid] and does not repeat rawURL,
// which may contain a password.
func ParseURL(rawURL string) (*URL, error) {
	if err := checkCharacters(rawURL); err != nil {
		return nil, err
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
	if u.Hosts != nil && strings.Contains(path, "@") || strings.Contains(query, "@") {
		return nil, fmt.Errorf("%w: backend URL: %s:// has an @ after the host: write an @ in a parameter as %%40, and in "+
			"a password a / as %%2F, a ? as %%3F", ErrInvalid, u.Scheme)
	}
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%w: backend URL: the parameters of the %s:// URL are not of the form "+
			"a=1&b=2, or have a %% or ; that has to be escaped", ErrInvalid, u.Scheme)
	}
	u.params = params
	for p := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(p, "="); p != "" {
			name, _ = url.QueryUnescape(name) // as ParseQuery did
			u.order = append(u.order, name)
		}
	}
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
