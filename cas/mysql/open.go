package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/tlsurl"
)

// Openers are the URL schemes of this package.
var Openers = driver.Openers{
	"mysql":  Open,
	"mysqls": Open,
}

const (
	// openTimeout bounds what Open asks the server, if ctx does not.
	openTimeout = 5 * time.Second
	connections = 16 // at most: each costs the server memory, and its max_connections are 151
)

// Open is the [driver.Opener] of this package, for the schemes mysql and mysqls; see the package
// documentation. It asks for the table, so that a wrong address, password or database is reported at
// once.
func Open(ctx context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
	o := cas.Options{Timeout: u.Duration("timeout", 0)}
	table := sqlstore.Options{Table: u.Param("table", ""), NoCreate: !u.Bool("create", true)}
	c := mysql.NewConfig()
	c.InterpolateParams = true // one round trip for a statement
	// The pool dials without a context: a network that swallows everything must not hold up the next connection.
	c.Timeout, c.ReadTimeout, c.WriteTimeout = openTimeout, 2*openTimeout+2*o.Timeout, openTimeout
	c.Params = map[string]string{"autocommit": "1"} // whatever the server's default is
	c.Logger = &mysql.NopLogger{}                   // it would write to standard error
	if u.Scheme == "mysqls" {
		var err error
		if c.TLS, err = tlsurl.Config(u); err != nil {
			return nil, err
		}
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	c.DBName = strings.TrimPrefix(u.Path, "/")
	if len(u.Hosts) != 1 || u.User == nil || c.DBName == "" || strings.Contains(c.DBName, "/") {
		return nil, u.Invalid("write %s://user:password@host[:port]/database", u.Scheme)
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", u.Hosts[0]
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		c.Addr = net.JoinHostPort(strings.Trim(c.Addr, "[]"), "3306")
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, u.Invalid("%v", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(time.Minute)
	db.SetConnMaxLifetime(time.Minute) // the address may lead to another server after a switch-over
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	store, err := sqlstore.New(ctx, db, sqlstore.MySQL(), &table)
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	return cas.New(owner{store, db}, &o)
}

// owner is a Store with a pool of its own.
type owner struct {
	*sqlstore.Store
	db *sql.DB
}

// Close closes the pool. Connections that are broken say so, and nobody need know.
func (o owner) Close() error {
	_ = o.db.Close()
	return nil
}
