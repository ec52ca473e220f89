package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/golockers/locker"
)

// The environment variables that the command gets.
const (
	nameEnv  = "LOCKER_NAME"
	tokenEnv = "LOCKER_TOKEN"
	outerEnv = "LOCKER_OUTER" // this and all outer locks, encoded as in a query: NAME=HOLDER
)

// lookUp finds the file of a command as a shell does.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		// Whoever has the current directory in PATH means it.
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &exitError{status: statusNotFound, err: fmt.Errorf("%s: command not found: nothing was locked", name)}
	default:
		return "", &exitError{status: statusCannotRun, err: fmt.Errorf("%s: cannot be executed (%w): nothing was locked", name, reason(err))}
	}
}

// reason is err without the name of the command, which stands before it already.
func reason(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// environment is what the command gets: that of locker, with the lock in it.
func environment(lease *locker.Lease, command string) []string {
	var env []string
	for _, v := range os.Environ() {
		// Those of an outer locker are about another lock.
		if name, _, _ := strings.Cut(v, "="); name != nameEnv && name != tokenEnv && name != outerEnv {
			env = append(env, v)
		}
	}
	held := url.Values{}
	for name, holder := range outerLocks() {
		held.Set(name, holder)
	}
	token, _ := lease.Token()
	held.Set(lease.Name(), holder(token, label(command)))
	env = append(env, nameEnv+"="+lease.Name(), outerEnv+"="+held.Encode())
	if token != 0 {
		env = append(env, tokenEnv+"="+strconv.FormatUint(token, 10))
	}
	return env
}

// holder tells one holder of a name from all others: by the token, or by the
// label where the service has none.
func holder(token uint64, label string) string {
	if token != 0 {
		return strconv.FormatUint(token, 10)
	}
	return label
}

// outerLocks are the holders of the locks that were held, by the locks' names,
// when the command that this locker is part of was started.
func outerLocks() map[string]string {
	held, err := url.ParseQuery(os.Getenv(outerEnv))
	if err != nil {
		return nil // not of our making
	}
	holders := make(map[string]string, len(held))
	for name := range held {
		holders[name] = held.Get(name)
	}
	return holders
}

// nested reports whether locker is part of a command that an outer one runs.
func nested() bool {
	_, inside := os.LookupEnv(nameEnv)
	return inside
}

// label tells others who holds the lock: command@host[pid of locker].
func label(command string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	text := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, filepath.Base(command)+"@"+host+"["+strconv.Itoa(os.Getpid())+"]")
	for len(text) > locker.MaxLabelLen {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text
}
