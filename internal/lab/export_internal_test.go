package lab

import "os"

// Patience is how long servers may say nothing before they are ready.
const Patience = patience

// Poll waits for servers that write to this log.
func Poll(check func() error, log *os.File) error {
	return poll(check, &Process{log: log}, &Process{log: log}) // one alone would have to run
}

// Suspended reports whether a process stands still.
func Suspended(pid int) bool { return suspended(pid) }
