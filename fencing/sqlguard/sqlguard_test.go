package sqlguard_test

import (
	"context"
	"math"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing/sqlguard"
)

// Tests that need a database are in internal/sqltest, a module of its own.

var dialects = []sqlguard.Dialect{sqlguard.Postgres, sqlguard.SQLite, sqlguard.MySQL}

// A table's name becomes part of every statement: nothing but a name may pass.
func TestTableIsAnIdentifier(t *testing.T) {
	long := strings.Repeat("x", 63)
	for _, d := range dialects {
		for _, name := range []string{"", "t", "_", "locker_marks", "Marks2", "app.marks", "order", long,
			long + "." + long} {
			_, err := sqlguard.New(d, &sqlguard.Options{Table: name})
			require.NoError(t, err, "%v %q", d, name)
		}
		for _, name := range []string{
			" ", "a b", "a;b", "a-b", `a"b`, "a`b", "a'b", `"a"`, "a.b.c", ".a", "a.", "a..b", "1a", "a.1b", "ä",
			"a\n", "\na", "a\x00", "a--",
			"a/*", "a)", long + "x", long + "." + long + "x", "$1", "TABLE_NAME;",
		} {
			_, err := sqlguard.New(d, &sqlguard.Options{Table: name})
			require.ErrorIs(t, err, locker.ErrInvalid, "%v %q", d, name)
			assert.NotContains(t, err.Error(), "\n")
		}
	}
}

func TestDialectIsKnown(t *testing.T) {
	for _, d := range []sqlguard.Dialect{0, -1, sqlguard.MySQL + 1, math.MaxInt} {
		_, err := sqlguard.New(d, nil)
		require.ErrorIs(t, err, locker.ErrInvalid)
		require.ErrorContains(t, err, "want Postgres, SQLite or MySQL")
	}
}

// A program that imports this package gets no driver, and nothing else of others.
func TestImportsNothingButTheStandardLibraryAndThisModule(t *testing.T) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	for _, path := range strings.Fields(string(out)) {
		assert.True(t, strings.HasPrefix(path+"/", "github.com/golockers/locker/"), path)
	}
}
