package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/golockers/locker/backends"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scheme is how a URL begins in the README's table.
var scheme = regexp.MustCompile("`([a-z+]+)://")

// The README's table and the list of this command have every URL that there is.
func TestReadmeListsEveryURL(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(readme), "| URL | service |\n")
	table, _, ends := strings.Cut(rest, "\n\n")
	require.True(t, begins && ends, "the README has no table of URLs")
	listed := map[string]bool{}
	for _, m := range scheme.FindAllStringSubmatch(table, -1) {
		listed[m[1]] = true
	}
	all := slices.Sorted(maps.Keys(backends.Openers))
	assert.Equal(t, all, slices.Sorted(maps.Keys(listed)), "the table")

	named := map[string]bool{}
	for _, p := range promises() {
		for _, m := range regexp.MustCompile(`([a-z+]+)://`).FindAllStringSubmatch(p.urls, -1) {
			named[m[1]] = true
		}
	}
	assert.Equal(t, all, slices.Sorted(maps.Keys(named)), "locker backends")
}
