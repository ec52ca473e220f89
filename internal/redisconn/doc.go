// Package redisconn takes the requests of many callers to one Redis and back:
// requests of one moment share round trips and scripts, errors are classified,
// and a caller returns when its context ends, whatever the driver does.
//
// Nothing in it knows what a lock is, but for the keys of one (keys.go) and the
// two scripts that package single and package redlock have in common
// (shared.go).
package redisconn
