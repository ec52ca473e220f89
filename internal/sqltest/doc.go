// Package sqltest holds the tests of package sqlguard on real databases:
// PostgreSQL and MariaDB, which the tests start themselves, and SQLite.
//
// Each database runs the same suite. A server that is not installed skips its
// tests, unless LOCKER_REQUIRE_SERVERS=1 forbids that; see package lab.
package sqltest
