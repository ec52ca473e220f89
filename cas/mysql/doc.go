// Package mysql opens locks in a table of MySQL or MariaDB by URL: package cas/sqlstore keeps them.
//
//	client, err := locker.Open(ctx, "mysql://user:password@host/database", nil, mysql.Openers)
//
// mysqls:// is the same over TLS. The port is 3306 unless the URL has one. The parameters are
//
//	table        the table, or schema.table; default: locker_records
//	create       off: a migration makes the table (sqlstore.MySQL().Schema), and Open does not
//	timeout      how long one request may take; default: that of package cas
//	ca           with mysqls://: a PEM file with the authorities to trust; default: those of the system
//	cert, key    with mysqls://: PEM files with the client's certificate and its key
//	server_name  with mysqls://: the name to expect in the server's certificate; default: the host
//
// and those that locker.Open lists. A user needs SELECT, INSERT and UPDATE on the table and, unless it
// exists, CREATE; locker check sees replicas only with PROCESS. A client has at most 16 connections. A
// program with its own [database/sql.DB] passes it to sqlstore.New with sqlstore.MySQL().
package mysql
