//go:build unix

package sqltest_test

import (
	"bufio"
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/pageprograms"
)

const (
	examples           = "../../examples"
	documentedRedis    = "localhost:6379"
	documentedPostgres = "postgres://postgres:secret@localhost:5432/postgres"
)

// The programs that docs/fencing.md quotes do what it says, each time.
func TestTheProgramsOfFencing(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string]func(t *testing.T) []string{
		"sqlite": func(t *testing.T) []string {
			return []string{"/var/lock/orders", filepath.Join(t.TempDir(), "locks"), // which the program makes
				"orders.db", filepath.Join(t.TempDir(), "orders.db")}
		},
		"account": func(t *testing.T) []string {
			s := startPostgres(t)
			return []string{documentedRedis, lab.StartRedis(t).Addr(), documentedPostgres, s.dsn(s.addr, password)}
		},
		"orm": func(t *testing.T) []string {
			s := startPostgres(t)
			return []string{documentedRedis, lab.StartRedis(t).Addr(), documentedPostgres,
				s.dsn(s.addr, password)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			output := pageprograms.Story
			switch name {
			case "account":
				output = "written\n"
			case "orm":
				output = "sqlx\n" + output + "GORM\n" + output + "ent\n" + output
			}
			pageprograms.RunTwice(t, pageprograms.Build(t, examples, name, addresses(t)...), output)
		})
	}
}

// The program that shows a refusal, in two processes. The first stops itself between its
// look at the lease and its write.
func TestTheTwoProcessesOfFencing(t *testing.T) {
	t.Parallel()
	lab.NeedPause(t)
	s := startPostgres(t)
	for service, url := range map[string]string{
		"redis": "redis://" + lab.StartRedis(t).Addr() + "?ttl=1s",
		"etcd":  "etcd://" + lab.StartEtcd(t, 1).Addrs()[0] + "?ttl=2s",
	} {
		t.Run(service, func(t *testing.T) {
			binary := pageprograms.Build(t, examples, "fencing")
			db := s.open(t)
			s.exec(t, db, "DROP TABLE IF EXISTS locker_marks, accounts")
			ctx := locktest.Within(t, time.Minute)
			worker := func(arg ...string) *exec.Cmd {
				return exec.CommandContext(ctx, binary,
					append(arg, "-lock", url, "-db", s.dsn(s.addr, password))...)
			}
			first := worker("-stop")
			var refusal strings.Builder
			first.Stderr = &refusal
			out, err := first.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, first.Start())
			for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "stopped"); {
				assert.Contains(t, lines.Text(), "balance 100")
			}
			second := worker()
			// SIGQUIT, to see where it is.
			second.Cancel = func() error { return second.Process.Signal(syscall.SIGQUIT) }
			said, err := second.CombinedOutput()
			require.NoError(t, err, "%s", said)
			assert.Contains(t, string(said), "written")
			require.NoError(t, first.Process.Signal(syscall.SIGCONT))
			require.Error(t, first.Wait())
			assert.Contains(t, refusal.String(), "refused: fencing: stale fencing token")
			var balance int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT balance FROM accounts").Scan(&balance))
			assert.Equal(t, 110, balance)
		})
	}
}

// Every language can be guarded that speaks SQL: here is a shell.
func TestPsqlWithAToken(t *testing.T) {
	t.Parallel()
	lab.Need(t, "psql")
	s := startPostgres(t)
	db := s.open(t)
	g, err := sqlguard.New(sqlguard.Postgres, nil)
	require.NoError(t, err)
	require.NoError(t, g.Create(t.Context(), db))
	s.exec(t, db, "CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT)")
	s.exec(t, db, "INSERT INTO orders VALUES (42, 'new')")
	write := func(token, state string) (string, error) {
		ctx := locktest.Within(t, 20*time.Second)
		cmd := exec.CommandContext(ctx, filepath.Join(examples, "psql", "invoice.sh"), state)
		cmd.Env = append(cmd.Environ(), "LOCKER_TOKEN="+token,
			"DATABASE_URL="+strings.Replace(s.dsn(s.addr, password), "&connect_timeout=30", "", 1))
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	said, err := write("7", "paid")
	require.NoError(t, err, said)
	said, err = write("8", "sent")
	require.NoError(t, err, said)
	said, err = write("7", "late")
	var status *exec.ExitError
	require.ErrorAs(t, err, &status)
	assert.Equal(t, 3, status.ExitCode())
	assert.Contains(t, said, "stale fencing token")
	_, err = write("", "none")
	require.Error(t, err)
	script, err := os.ReadFile(filepath.Join(examples, "psql", "invoice.sh"))
	require.NoError(t, err)
	squeezed := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	raise, _, _ := strings.Cut(g.Statements().Raise, "RETURNING")
	assert.Contains(t, squeezed(string(script)),
		squeezed(strings.NewReplacer("$1", "'order/42'", "$2", ":token", `"`, "").Replace(raise)))
	var state string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT state FROM orders").Scan(&state))
	assert.Equal(t, "sent", state)
	assert.EqualValues(t, 8, mark(t, g, db, "order/42"))
	err = g.Do(t.Context(), db, nil, "order/42", 7, func(context.Context, *sql.Tx) error { return nil })
	require.Error(t, err, "Go and the shell share the mark")
}
