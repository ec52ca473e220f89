//go:build unix

package sqltest_test

import (
	"path/filepath"
	"testing"

	"github.com/golockers/locker/internal/pageprograms"
	"github.com/stretchr/testify/assert"
)

// A reader can paste each program for a database of docs/fencing.md, and it says what the page says, each time.
func TestTheProgramsOfFencing(t *testing.T) {
	databases := map[string]func(t *testing.T) (documented, real string){
		"sqlite": func(t *testing.T) (string, string) { return "orders.db", filepath.Join(t.TempDir(), "orders.db") },
		"postgres": func(t *testing.T) (string, string) {
			s := startPostgres(t)
			return "postgres://postgres:secret@localhost:5432/postgres", s.dsn(s.addr, password)
		},
		"mysql": func(t *testing.T) (string, string) {
			s := startMariaDB(t)
			return "root:secret@tcp(localhost:3306)/test", s.dsn(s.addr, password)
		},
	}
	for _, p := range pageprograms.Read(t, "../../docs/fencing.md") {
		start, ours := databases[p.Name]
		if !ours {
			continue
		}
		delete(databases, p.Name)
		t.Run(p.Name, func(t *testing.T) {
			documented, real := start(t)
			p.RunTwice(t, documented, real)
		})
	}
	assert.Empty(t, databases, "programs that the page does not have any more")
}
