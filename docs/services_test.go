package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A row of a section of services.md: an option, the parameter of the URL, the default, what it is.
var (
	optionRow = regexp.MustCompile("(?m)^\\| (?:`(\\w+)`)?(?:, of package `cas`)? ?\\| ([^|]*)\\| ([^|]*)\\| [^|\n]+\\|$")
	quoted    = regexp.MustCompile("`([a-z_0-9]+)(?:=\\w+)?`")
	asked     = regexp.MustCompile(`\bu\.(?:Param|Duration|Bool|Uint)\("(\w+)"`)
)

// sourcesOf returns the package's code, and what its comments say of each option.
func sourcesOf(t *testing.T, dir string) (code string, options map[string]*ast.Field) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	require.NoError(t, err)
	options = map[string]*ast.Field{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code += string(text)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != "Options" {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				if f.Names[0].IsExported() {
					options[f.Names[0].Name] = f
				}
			}
			return false
		})
	}
	return code, options
}

// The page has every option and every parameter of a URL, and the default that the option's comment says.
func TestThePageOnServicesHasEveryOption(t *testing.T) {
	page, err := os.ReadFile("services.md")
	require.NoError(t, err)
	_, urls, _ := strings.Cut(string(page), "\n## URLs\n")
	for service, dir := range map[string]string{
		"single": "single", "redlock": "redlock", "postgres": "postgres", "etcd": "etcd", "zookeeper": "zookeeper",
		"kubernetes": "cas/kubernetes", "nats": "cas/nats", "mysql": "cas/sqlstore",
	} {
		t.Run(service, func(t *testing.T) {
			_, section, found := strings.Cut(string(page), "\n## "+service+"\n")
			require.True(t, found)
			section, _, _ = strings.Cut(section, "\n## ")
			assert.Contains(t, section, path.Base(dir)+".New(")
			code, options := sourcesOf(t, dir)
			if service == "mysql" { // whose URL has a package of its own
				opener, _ := sourcesOf(t, "cas/mysql")
				code += opener
			}
			params := map[string]bool{}
			for _, row := range optionRow.FindAllStringSubmatch(section, -1) {
				for _, m := range quoted.FindAllStringSubmatch(row[2], -1) {
					params[m[1]] = true
					assert.True(t, m[1] == "ttl" || strings.Contains(code, `"`+m[1]+`"`), "the URL has no %s", m[1])
				}
				field, def := options[row[1]], strings.TrimSpace(strings.ReplaceAll(row[3], "`", ""))
				if row[1] == "" || strings.Contains(row[0], "of package `cas`") {
					continue
				}
				require.NotNil(t, field, "there is no option %s", row[1])
				delete(options, row[1])
				said, _, _ := strings.Cut(def, ";")
				switch {
				case said == "off":
					assert.Equal(t, "bool", field.Type.(*ast.Ident).Name, row[1])
				case said != "none":
					assert.Contains(t, strings.Join(strings.Fields(field.Doc.Text()), " "), said, "the default of %s", row[1])
				}
			}
			assert.Empty(t, options, "options that the page does not have")
			for _, m := range asked.FindAllStringSubmatch(code, -1) {
				assert.True(t, params[m[1]] || strings.Contains(urls[:2000], "`"+m[1]+"`"), "the page does not have %s", m[1])
			}
		})
	}
}
