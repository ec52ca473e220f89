package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rules R1 to R27 have their numbers in design.md and in the code: a reader of `go doc`
// has no list of them.
func TestExportedDocsNameNoRuleByItsNumber(t *testing.T) {
	rule, seen := regexp.MustCompile(`\bR\d+\b`), 0
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "internal" || name == "testdata" || name == "cmd" || name == ".git" ||
			name == ".cache"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.FileExports(file)
		ast.Inspect(file, func(n ast.Node) bool { // visits the comments of what go doc shows
			switch n := n.(type) {
			case *ast.FuncDecl:
				return n.Recv == nil || ast.IsExported(strings.Trim(types.ExprString(n.Recv.List[0].Type), "*"))
			case *ast.CommentGroup:
				seen++
				assert.NotRegexp(t, rule, n.Text(), files.Position(n.Pos()))
			}
			return true
		})
		return nil
	}))
	assert.Greater(t, seen, 500, "comments")
}
