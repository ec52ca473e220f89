package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/golockers/locker/driver"
)

// checkMySQL looks at the settings that break promises.
func checkMySQL(ctx context.Context, db *sql.DB) (all []driver.Finding, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	variables := map[string]string{}
	rows, err := conn.QueryContext(ctx, "SHOW GLOBAL VARIABLES")
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var name, value string
		err = errors.Join(err, rows.Scan(&name, &value))
		variables[name] = value
	}
	// An option that is no variable: it shows in what SYSDATE says.
	var slept, ahead, replicas int64
	err = errors.Join(err, rows.Err(), rows.Close(),
		conn.QueryRowContext(ctx, "SELECT SLEEP(0.002), TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))").Scan(&slept, &ahead),
		conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'").Scan(&replicas))
	if err != nil {
		return nil, err
	}
	is := func(what, found string, bad bool, severity driver.Severity, advice string) {
		if !bad {
			severity, advice = driver.SeverityOK, ""
		}
		all = append(all, driver.Finding{What: what, Found: found, Severity: severity, Advice: advice})
	}
	yes := func(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }
	const lost = ": locks and tokens that a replica does not have yet are lost when it takes over, and a second holder can have them"
	is("server", variables["version"], false, 0, "")
	is("read_only", variables["read_only"], variables["read_only"] != "OFF", driver.SeverityProblem,
		"no lock can be had here: name the primary")
	is("--sysdate-is-now", yes(ahead == 0), ahead == 0, driver.SeverityWarning,
		"a write that waited seems older than it is, so a MinHold can end early: start the server without it")
	flush := variables["innodb_flush_log_at_trx_commit"]
	is("innodb_flush_log_at_trx_commit", flush, flush != "1" && flush != "3", driver.SeverityProblem,
		"a crash loses locks and sets tokens back: set it to 1")
	if variables["log_bin"] == "ON" {
		binlog := variables["sync_binlog"]
		is("sync_binlog", binlog, binlog != "1" && flush != "3", driver.SeverityProblem,
			"after a crash, what the binary log has lost is undone, locks and tokens too: set it to 1")
	}
	galera := variables["wsrep_on"] == "ON"
	is("Galera", yes(galera), galera, driver.SeverityProblem,
		"a node that was cut off, or applies late, shows old data; a cluster that lost its majority, or starts anew from a node that "+
			"was behind, grants a held lock again: use one server that is not in the cluster")
	group := variables["group_replication_group_name"] != ""
	is("Group Replication", yes(group), group, driver.SeverityWarning, "it is not tested"+lost)
	is("replicas", yes(replicas > 0), replicas > 0, driver.SeverityWarning, "they are asynchronous, or can become so"+lost)
	return all, nil
}
