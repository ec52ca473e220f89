// Package rediswake tells callers when a lock may have become free: one
// subscription connection for all names of a server (on a Cluster one per shard).
package rediswake
