package main_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page on services says of guarantees what the code declares.
func TestThePageOnServicesShowsWhatTheCodeDeclares(t *testing.T) {
	r := do(t, nil, "backends", "--markdown")
	require.Equal(t, 0, r.status, r.stderr)
	page, err := os.ReadFile("../../docs/services.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(page), "<!-- locker backends --markdown -->\n")
	shown, _, ends := strings.Cut(rest, "<!-- end -->")
	require.True(t, begins && ends, "the page has no place for the table")
	assert.Equal(t, strings.TrimSpace(r.stdout), strings.TrimSpace(shown),
		"paste the output of: locker backends --markdown")
}
