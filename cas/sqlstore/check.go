package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/golockers/locker/driver"
)

// checkMySQL looks at the settings that break promises.
func checkMySQL(ctx context.Context, db *sql.DB) (all []driver.Finding, err error) {
	variables := map[string]string{}
	rows, err := db.QueryContext(ctx, "SHOW GLOBAL VARIABLES")
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var name, value string
		err = errors.Join(err, rows.Scan(&name, &value))
		variables[name] = value
	}
	// The first is an option that is no variable: it shows in what SYSDATE says.
	var slept, ahead, replicas int64
	err = errors.Join(err, rows.Err(), rows.Close(), db.QueryRowContext(ctx, "SELECT SLEEP(0.002), "+
		"TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)), (SELECT COUNT(*) FROM information_schema.PROCESSLIST "+
		"WHERE COMMAND LIKE 'Binlog Dump%')").Scan(&slept, &ahead, &replicas))
	if err != nil {
		return nil, err
	}
	is := func(what, found string, good bool, severity driver.Severity, advice string) {
		if good {
			severity, advice = driver.SeverityOK, ""
		}
		all = append(all, driver.Finding{What: what, Found: found, Severity: severity, Advice: advice})
	}
	setting := func(name string, good []string, advice string) {
		is(name, variables[name], slices.Contains(good, variables[name]), driver.SeverityProblem, advice)
	}
	has := func(what string, yes bool, severity driver.Severity, advice string) {
		is(what, map[bool]string{true: "yes", false: "no"}[yes], !yes, severity, advice)
	}
	const lost = ": locks and tokens that a replica does not have yet are lost when it takes over, and a second holder can have them"
	is("server", variables["version"], true, 0, "")
	setting("read_only", []string{"OFF"}, "no lock can be had here: name the primary")
	setting("innodb_flush_log_at_trx_commit", []string{"1", "3"}, "a crash loses locks and sets tokens back: set it to 1")
	if variables["log_bin"] == "ON" && variables["innodb_flush_log_at_trx_commit"] != "3" {
		setting("sync_binlog", []string{"1"}, "after a crash, what the binary log has lost is undone, locks and tokens too: set it to 1")
	}
	has("--sysdate-is-now", ahead == 0, driver.SeverityWarning,
		"a write that waited seems older than it is, so a MinHold can end early: start the server without it")
	has("Galera", variables["wsrep_on"] == "ON", driver.SeverityProblem,
		"a node that was cut off, or applies late, shows old data; a cluster that lost its majority, or starts anew from a node that "+
			"was behind, grants a held lock again: use one server that is not in the cluster")
	has("Group Replication", variables["group_replication_group_name"] != "", driver.SeverityWarning, "it is not tested"+lost)
	has("replicas", replicas > 0, driver.SeverityWarning, "they are asynchronous, or can become so"+lost)
	return all, nil
}
