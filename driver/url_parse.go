package driver

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// checkCharacters refuses invisible characters, such as the line end of a secret's file: as part of a
// prefix or a directory, they would name another lock (R27).
func checkCharacters(rawURL string) error {
	for i, r := range []rune(rawURL) {
		kind, meant := "an invisible character", "write an intended space as %20"
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
			meant += ", and package bridge takes two URLs"
		}
		return invalid("backend URL: character %d is %s (%U): remove it (%s)", i+1, kind, r, meant)
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
		return nil, invalid("backend URL: it has no scheme: write it like redis://localhost:6379 or " +
			"file:///var/lock/myapp")
	}
	u := &URL{Scheme: strings.ToLower(scheme)}
	if strings.Contains(rest, "#") {
		return nil, invalid("backend URL: %s:// has no fragment: write a # in a password or parameter as %%23", u.Scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, slash := strings.Cut(rest, "/")
	var err error
	if slash {
		if u.Path, err = url.PathUnescape("/" + path); err != nil {
			return nil, invalid("backend URL: the path of the %s:// URL has a %% that is not followed by two "+
				"hexadecimal digits", u.Scheme)
		}
	}
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		if u.User, err = parseUser(authority[:at]); err != nil {
			return nil, invalid("backend URL: user or password of the %s:// URL: %w", u.Scheme, err)
		}
		authority = authority[at+1:]
	}
	if authority != "" {
		u.Hosts = strings.Split(authority, ",")
	}
	for i, h := range u.Hosts {
		// The error does not repeat the host: it may be the start of a password
		// with a character that had to be escaped.
		if err := checkHost(h); err != nil {
			return nil, invalid("backend URL: host %d of the %s:// URL: %w", i+1, u.Scheme, err)
		}
	}
	if u.Hosts != nil && strings.Contains(path, "@") || strings.Contains(query, "@") {
		return nil, invalid("backend URL: %s:// has an @ after the host: write an @ in a parameter as %%40, and in "+
			"a password a / as %%2F, a ? as %%3F", u.Scheme)
	}
	if strings.Contains(query, "+") { // encoders of URLs write it for a space
		return nil, invalid("backend URL: %s:// has a + in a parameter: write %%2B for a plus, or %%20 for a space", u.Scheme)
	}
	if u.params, err = url.ParseQuery(query); err != nil {
		return nil, invalid("backend URL: the parameters of the %s:// URL are not of the form a=1&b=2, or have "+
			"a %% or ; that has to be escaped", u.Scheme)
	}
	for p := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(p, "="); p != "" {
			name, _ = url.QueryUnescape(name) // as ParseQuery did
			u.order = append(u.order, name)
		}
	}
	query, _ = url.QueryUnescape(query)
	if strings.ContainsFunc(u.Path+query, unicode.IsControl) {
		return nil, u.Invalid("its path or a parameter has a control character or line end in it: remove " +
			"what begins with %%0 or %%1")
	}
	return u, nil
}

func parseUser(s string) (*url.Userinfo, error) {
	name, password, has := strings.Cut(s, ":")
	name, err := url.PathUnescape(name)
	password, err2 := url.PathUnescape(password)
	switch {
	case err != nil || err2 != nil || strings.ContainsAny(s, "/@,"):
		return nil, errors.New("escape what is special in it, as in p%40ss for p@ss")
	case has:
		return url.UserPassword(name, password), nil
	}
	return url.User(name), nil
}

// checkHost accepts host, host:port, [IPv6] and [IPv6]:port.
func checkHost(h string) error {
	host, port, colon := strings.Cut(h, ":")
	if rest, ok := strings.CutPrefix(h, "["); ok {
		host, port, ok = strings.Cut(rest, "]")
		if !ok || port != "" && port[0] != ':' {
			return errors.New("write an IPv6 address as [::1] or [::1]:6379")
		}
		port, colon = strings.CutPrefix(port, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case colon && port == "":
		return errors.New("the port is missing after the colon")
	case strings.Contains(port, ":"):
		return errors.New("write an IPv6 address in brackets, and several hosts with commas between them")
	case host == "":
		return errors.New("it is empty")
	case strings.ContainsAny(host, "%\\\"<>"):
		return errors.New("it has a character that host names cannot have")
	case port != "" && (err != nil || n == 0):
		return errors.New("the port is not a number from 1 to 65535")
	}
	return nil
}
