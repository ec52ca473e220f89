package main

import (
	"go/ast"
	"go/format"
	"go/parser"
	"maps"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scheme is how a URL begins in the README's table.
var scheme = regexp.MustCompile("`([a-z+]+)://")

// Whoever pastes the Openers of the README can open every URL of the table
// below them, which are all that there are.
func TestReadmeOpensEveryURL(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(readme), "```go\nopen := ")
	snippet, rest, ends := strings.Cut(rest, "\nclient, err := open.Open(")
	require.True(t, begins && ends, "the README has no Openers")
	formatted, err := format.Source([]byte("package p\n\nvar open = " + snippet + "\n"))
	require.NoError(t, err)
	assert.Equal(t, "package p\n\nvar open = "+snippet+"\n", string(formatted), "gofmt")

	expr, err := parser.ParseExpr(snippet)
	require.NoError(t, err)
	shown := map[string]string{}
	for _, e := range expr.(*ast.CompositeLit).Elts {
		pair := e.(*ast.KeyValueExpr)
		key, err := strconv.Unquote(pair.Key.(*ast.BasicLit).Value)
		require.NoError(t, err)
		f := pair.Value.(*ast.SelectorExpr)
		shown[key] = f.X.(*ast.Ident).Name + "." + f.Sel.Name
	}
	real := map[string]string{"memory": "memory.Open"} // which this command does not have
	for key, f := range openers {
		name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
		real[key] = name[strings.LastIndexByte(name, '/')+1:]
	}
	assert.Equal(t, real, shown)

	_, rest, begins = strings.Cut(rest, "| URL | service |\n")
	table, _, ends := strings.Cut(rest, "\n\n")
	require.True(t, begins && ends, "the README has no table of URLs")
	listed := map[string]bool{}
	for _, m := range scheme.FindAllStringSubmatch(table, -1) {
		listed[m[1]] = true
	}
	all := slices.Sorted(maps.Keys(real))
	assert.Equal(t, all, slices.Sorted(maps.Keys(listed)), "the table")

	named := map[string]bool{}
	for _, p := range promises() {
		for _, m := range regexp.MustCompile(`([a-z+]+)://`).FindAllStringSubmatch(p.urls, -1) {
			named[m[1]] = true
		}
	}
	assert.Equal(t, all, slices.Sorted(maps.Keys(named)), "locker backends")
}
