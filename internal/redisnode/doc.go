// Package redisnode is one Redis node as seen by a lock: acquire, renew, release, wake-ups, inspect.
package redisnode
