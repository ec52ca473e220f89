package postgres

import "context"

// ConfirmSQL is what is asked about standbys.
const ConfirmSQL = confirmSQL

// Statements are those for the default table, by their names.
func Statements() map[string]string {
	s := statementsFor("public", DefaultTable)
	return map[string]string{
		"conditions": s.conditions, "grant": s.grant, "tell": s.tell, "take": s.take, "give": s.give,
		"take shares": s.takeShares, "join": s.join,
		"mark": s.mark, "unmark": s.unmark, "renew": s.renew, "release": s.release, "leave": s.leave,
		"look": s.look, "list": s.list, "break": s.evict, "held": s.held,
		"floor": s.floor, "turn": s.turn, "sweep": s.sweep,
	}
}

// Key is the latch of a name.
func Key(name string) int64 { return statementsFor("public", DefaultTable).key(name) }

// Sweep removes old rows now.
func Sweep(ctx context.Context, b *Backend) error {
	b.busy.Wait() // a sweep of the first request in the background would be the one of these ten minutes
	s, err := b.ready(ctx, onStandby)
	if err == nil {
		// Nobody has swept for long.
		_, err = b.pool.Exec(ctx, "UPDATE "+s.table+" SET expires = 'epoch' WHERE name = ''")
	}
	if err == nil {
		err = b.pass(ctx)
	}
	return err
}
