// Package redlock keeps locks in a majority of N independent Redis servers.
package redlock
