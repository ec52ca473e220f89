package conformance_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
)

// tableRow is a sentence of the contract in the documentation of the package.
type tableRow struct{ subject, sentence, check, flaw string }

var between = regexp.MustCompile(` {2,}`)

// readTable reads the table.
func readTable(t *testing.T) (rows []tableRow) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n// # The contract\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n// # ")
	subject := ""
	for line := range strings.Lines(table) {
		line, code := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		assert.LessOrEqual(t, len(line), 100)
		switch {
		case !code:
		case line[0] != ' ':
			subject = line
		default:
			columns := between.Split(strings.TrimSpace(line), -1)
			require.Len(t, columns, 3, "%q", line)
			rows = append(rows, tableRow{subject, columns[0], columns[1], columns[2]})
		}
	}
	return rows
}

// contract is what the table has to cover: each method that an interface of the root package
// has, and each field of the structs in which something is promised.
func contract(t *testing.T) (members []string) {
	t.Helper()
	promises := []string{"Request", "Grant", "Validity", "HeldError", "Guarantees"}
	for _, file := range []string{"../locker.go", "../backend.go", "../errors.go", "../guarantees.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			var fields *ast.FieldList
			switch kind := spec.Type.(type) {
			case *ast.InterfaceType:
				fields = kind.Methods
			case *ast.StructType:
				if slices.Contains(promises, spec.Name.Name) {
					fields = kind.Fields
				}
			}
			if fields == nil {
				return false
			}
			for _, field := range fields.List {
				for _, name := range field.Names {
					if name.IsExported() {
						members = append(members, spec.Name.Name+"."+name.Name)
					}
				}
			}
			return false
		})
	}
	return members
}

// flawNames returns the flaws by the names of their constants.
func flawNames(t *testing.T) map[string]flaw {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "flaws_test.go", nil, 0)
	require.NoError(t, err)
	flaws := make(map[string]flaw)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			flaws[spec.Names[0].Name] = flaw(text)
		}
		return true
	})
	return flaws
}

// gaps returns what is wrong with the table. That a broken backend is rejected by the check
// beside it is what TestBrokenBackendsAreRejectedByTheCheckThatIsMeantForThem proves of those
// that it is given.
func gaps(rows []tableRow, members []string, flaws map[string]flaw, proven []broken) (wrong []string) {
	none := []string{"Checker.Check", "Grant.Session", "Aser.As", "Guarantees.SurvivesPause"}
	var checks []string
	for _, c := range conformance.Checks() {
		checks = append(checks, c.Name)
		if !slices.ContainsFunc(rows, func(r tableRow) bool { return r.check == c.Name }) {
			wrong = append(wrong, "no row has the check "+c.Name)
		}
	}
	for _, m := range members {
		if !slices.ContainsFunc(rows, func(r tableRow) bool { return r.subject == m }) {
			wrong = append(wrong, m+" has no row")
		}
	}
	for _, r := range rows {
		where := fmt.Sprintf("%s, %q: ", r.subject, r.sentence)
		known, isFlaw := flaws[r.flaw]
		switch {
		case !slices.Contains(members, r.subject):
			wrong = append(wrong, where+"the contract has no such member")
		case r.check == "none" && slices.Contains(none, r.subject):
		case !slices.Contains(checks, r.check):
			wrong = append(wrong, where+"there is no check "+r.check)
		case !isFlaw:
			wrong = append(wrong, where+"there is no flaw "+r.flaw)
		case !slices.ContainsFunc(proven, func(b broken) bool { return b.check == r.check && b.flaw == known }):
			wrong = append(wrong, where+"nothing proves that "+r.check+" rejects "+r.flaw)
		}
	}
	return wrong
}

func TestEverySentenceOfTheContractHasACheckThatFails(t *testing.T) {
	assert.Empty(t, strings.Join(gaps(readTable(t), contract(t), flawNames(t), brokenBackends), "\n"))
}

func TestGapsOfTheTableAreSeen(t *testing.T) {
	members, flaws := contract(t), flawNames(t)
	for seen, change := range map[string]func(r *tableRow){
		"Hold.Release has no row":            func(r *tableRow) { r.subject = "Hold.Renew" },
		"the contract has no such member":    func(r *tableRow) { r.subject = "Hold.Relase" },
		"there is no check owner-exakt":      func(r *tableRow) { r.check = "owner-exakt" },
		"there is no check none":             func(r *tableRow) { r.check = "none" },
		"there is no flaw releasesEverybody": func(r *tableRow) { r.flaw = "releasesEverybody" },
		"nothing proves that ttl-kept rejects closeHangs": func(r *tableRow) {
			r.check, r.flaw = "ttl-kept", "closeHangs"
		},
	} {
		rows := readTable(t)
		for i := range rows {
			if rows[i].subject == "Hold.Release" {
				change(&rows[i])
			}
		}
		assert.Contains(t, strings.Join(gaps(rows, members, flaws, brokenBackends), "\n"), seen)
	}
}
