package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/label"
)

// The environment variables that the command gets.
const (
	nameEnv  = "LOCKER_NAME"
	tokenEnv = "LOCKER_TOKEN"
	slotEnv  = "LOCKER_SLOT"
	outerEnv = "LOCKER_OUTER" // this and all outer locks, encoded as in a query: NAME=LABEL&NAME=TOKEN
)

// lookUp finds the file of a command as a shell does.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		// A user with the current directory in PATH wants this.
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &exitError{status: statusNotFound, err: fmt.Errorf("%s: command not found: nothing was "+
			"locked", name)}
	default:
		return "", &exitError{status: statusCannotRun, err: fmt.Errorf("%s: cannot be executed (%w): "+
			"nothing was locked", name, errors.Unwrap(err))}
	}
}

// environment is the command's environment: that of locker, with the lock added.
func environment(lease *locker.Lease, command string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		// The variables of an outer locker are about another lock.
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{nameEnv, tokenEnv, slotEnv, outerEnv}, name)
	})
	held := outerLocks()
	held.Set(lease.Name(), label.Of([]string{command}, locker.MaxLabelLen))
	if token, ok := lease.Token(); ok {
		text := strconv.FormatUint(token, 10)
		held.Add(lease.Name(), text)
		env = append(env, tokenEnv+"="+text)
	}
	return append(env, nameEnv+"="+lease.Name(), outerEnv+"="+held.Encode())
}

// outerLocks are the locks that outer lockers held when they started the command that
// this locker is part of: the names, each with its label and, where there is one, its token.
func outerLocks() url.Values {
	held, _ := url.ParseQuery(os.Getenv(outerEnv)) // an error: it is not of our making
	return held
}

// nested reports whether locker is part of a command of an outer locker.
func nested() bool {
	_, inside := os.LookupEnv(nameEnv)
	return inside
}
