package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Sweep removes old rows now.
func Sweep(ctx context.Context, b *Backend, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, b.sql.sweep, b.key("\x00"))
	return err
}
