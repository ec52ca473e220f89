package fencingproof_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
)

// target is one thing that holders write to.
// The holder in the child and the one in the test write by the same code.
type target struct {
	// write returns an error that matches fencing.ErrStale if it was refused.
	write func(ctx context.Context, token fencing.Token, value string) error
	// raise moves the mark of one behind a guard.
	raise func(ctx context.Context, token fencing.Token) error
	read  func(ctx context.Context) (string, error)
	close func()
}

// thing is two targets of one kind, one without a guard and one behind it.
// They are descriptions: a word for the kind, and what that has to know, so
// that they can be given to a child.
type thing struct{ kind, plain, guarded string }

// descriptions are what a child is given: two for each thing.
func descriptions(things []thing) []string {
	var all []string
	for _, th := range things {
		all = append(all, th.plain, th.guarded)
	}
	return all
}

// storeThing is a thing in a Redis: its address, the key, and behind a guard the resource.
func storeThing(addr, name string) thing {
	return thing{"redis",
		fmt.Sprintf("redis %s {%s}:plain", addr, name), fmt.Sprintf("redis %s {%s}:guarded %s", addr, name, name)}
}

func openTarget(description string) (*target, error) {
	words := append(strings.Fields(description), "") // no resource: without a guard
	switch words[0] {
	case "http":
		return openHTTP(words[1]), nil
	case "redis":
		return openRedis(words[1], words[2], words[3])
	}
	return nil, fmt.Errorf("no target %q", description)
}

// access opens targets once for the test that uses them.
type access struct {
	t    *testing.T
	open map[string]*target
}

func newAccess(t *testing.T) *access {
	a := &access{t, map[string]*target{}}
	t.Cleanup(func() {
		for _, target := range a.open {
			target.close()
		}
	})
	return a
}

func (a *access) to(description string) *target {
	a.t.Helper()
	if a.open[description] == nil {
		target, err := openTarget(description)
		require.NoError(a.t, err)
		a.open[description] = target
	}
	return a.open[description]
}

// write writes as the holder with token.
func (a *access) write(token fencing.Token, description, value string) error {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	return a.to(description).write(ctx, token, value)
}

// raise raises the mark as the holder with token.
func (a *access) raise(token fencing.Token, description string) error {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	return a.to(description).raise(ctx, token)
}

func (a *access) read(description string) string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	value, err := a.to(description).read(ctx)
	require.NoError(a.t, err)
	return value
}
