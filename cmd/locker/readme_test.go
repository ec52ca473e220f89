package main_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the README says of guarantees is what the code declares.
func TestReadmeShowsWhatTheCodeDeclares(t *testing.T) {
	r := do(t, nil, "backends", "--markdown")
	require.Equal(t, 0, r.status, r.stderr)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(readme), "<!-- locker backends --markdown -->\n")
	shown, _, ends := strings.Cut(rest, "<!-- end -->")
	require.True(t, begins && ends, "the README has no place for the table")
	assert.Equal(t, strings.TrimSpace(r.stdout), strings.TrimSpace(shown), "paste the output of: locker backends --markdown")
}
