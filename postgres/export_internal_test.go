package postgres

import "context"

// ConfirmSQL is what is asked about standbys.
const ConfirmSQL = confirmSQL

// ConditionsSQL comes before each of the others.
var ConditionsSQL = statementsFor("public", DefaultTable).conditions

// Sweep removes old rows now.
func Sweep(ctx context.Context, b *Backend) error {
	b.busy.Wait() // a sweep of the first request in the background would be the one of these ten minutes
	s, err := b.ready(ctx)
	if err == nil {
		// Nobody has swept for long.
		_, err = b.pool.Exec(ctx, "UPDATE "+s.table+" SET expires = 'epoch' WHERE name = ''")
	}
	if err == nil {
		err = b.pass(ctx)
	}
	return err
}
