package lab

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// StartPgbouncer starts a pgbouncer before a PostgreSQL, in transaction mode, and returns its address. User
// and password are those of the server. It ends with the test.
func StartPgbouncer(t TB, s *Postgres) (addr string) {
	t.Helper()
	binary := Need(t, "pgbouncer")
	dir, err := os.MkdirTemp("", "locker-pb-")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = giveAway(dir)
	}
	port, failed := freePort(t)
	if failed != nil || err != nil {
		t.Fatalf("lab: prepare a pgbouncer: %v, %v", err, failed)
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=%s password=%s\n"+
		"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = transaction\n", s.port, PostgresUser,
		PostgresPassword, port)
	if err = os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatalf("lab: configuration of pgbouncer: %v", err)
	}
	p := newProcess(t, "pgbouncer", t.TempDir(), func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(context.Background(), binary, file)
		cmd.Dir = dir
		return cmd, asUnprivileged(cmd)
	})
	p.answers = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		u := url.URL{Scheme: "postgres", User: url.User(PostgresUser), Host: loopback(port),
			Path: "/postgres", RawQuery: "sslmode=disable"}
		conn, err := pgx.Connect(ctx, u.String())
		if err == nil {
			err = conn.Close(ctx)
		}
		return err
	}
	if err := serve(p); err != nil {
		t.Fatalf("%v", err)
	}
	return loopback(port)
}
