package main_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An answer that nobody gets is neither a success nor a wrong command line.
func TestAnAnswerThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	backend := []with{fileBackend(t), func(cmd *exec.Cmd) { cmd.Stdout = full }}
	for _, args := range [][]string{{"inspect", "a"}, {"inspect", "--json", "a"}, {"break", "--yes", "a"},
		{"check"}, {"backends"}} {
		p := start(t, backend, args...)
		assert.Equal(t, 73, p.wait(), args)
		assert.Equal(t, "locker: write /dev/stdout: no space left on device\n", p.said(), args)
	}
}
