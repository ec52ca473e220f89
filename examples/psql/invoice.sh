#!/bin/sh
# A write with the token of a lock, by whatever can speak SQL. locker run holds the lock and
# sets LOCKER_TOKEN:
#
#	locker run order/42 -- ./invoice.sh sent
#
# The statement in the middle is Raise of sqlguard's Statements. The table is Create of them.
set -eu
psql --no-psqlrc --quiet -v ON_ERROR_STOP=1 -v token="$LOCKER_TOKEN" -v state="$1" "$DATABASE_URL" <<'SQL'
BEGIN;
INSERT INTO locker_marks AS m (resource, token, used)
VALUES ('order/42', :token, CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp())) AS BIGINT))
ON CONFLICT (resource) DO UPDATE
SET token = GREATEST(m.token, excluded.token), used = GREATEST(m.used, excluded.used)
RETURNING token AS mark, token > :token AS stale \gset
\if :stale
DO $$ BEGIN RAISE EXCEPTION 'stale fencing token: a later holder was here'; END $$; -- psql ends here, with status 3
\endif
UPDATE orders SET state = :'state' WHERE id = 42;
COMMIT;
SQL
