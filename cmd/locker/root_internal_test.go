package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// It also links all of the command into the test binary: go test would
// otherwise take a result from its cache although the command, which TestMain
// builds by itself, has changed.
func TestEveryCommandTeachesByExample(t *testing.T) {
	_, done := beGuard(nil)
	assert.False(t, done)
	root := newRoot()
	assert.NotEmpty(t, root.Example)
	for _, cmd := range root.Commands() {
		assert.NotEmpty(t, cmd.Short, cmd.Name())
		assert.NotEmpty(t, cmd.Long, cmd.Name())
		assert.Contains(t, cmd.Example, "locker "+cmd.Name(), cmd.Name())
	}
}
