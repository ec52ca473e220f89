// Package file is the lock service of one host: the kernel's file locks, and
// no server. It runs on Linux and macOS; elsewhere [New] returns an error that
// matches [errors.ErrUnsupported].
//
//	locks, err := file.New("/var/lib/myprogram/locks")
//	…
//	client := locker.New(locks, nil)
//
// Each lock is one file in that directory, locked with flock(2). Processes
// that use the same directory exclude each other, whatever they are written
// in: `flock FILE command` of a shell script takes part, too.
//
// # What it promises
//
// At most one lease on a name at a time among the processes of one kernel,
// containers that share the directory included. No clock has a part in it, so
// leases have no deadline: [locker.Lease.Until] is the zero time, and a lease is
// not lost while its process lives and its file stays.
//
// A lock is free the moment its holder's process ends, however it ends. Waiting
// is done by the kernel, without polling, and a wait that is cancelled returns
// at once.
//
// Every lease has a fencing token, kept in the file and raised while the lock
// is held: one more than the last one, or the microseconds since 1970 if that
// is more. So tokens rise whatever the clock does for as long as the file is
// there; and when it was deleted, or lost its last changes because the machine
// crashed (nothing here waits for a disk), they still rise unless the clock was
// set back to before the last one.
//
// # What it does not promise
//
// Nothing keeps out another host. Network, cluster and user-space file systems
// (NFS, SMB, CephFS, everything that is FUSE, the shared folders of virtual
// machines) are refused: there, locks end without notice, or mean something else.
//
// Lock files are never deleted by this package, and nothing else may delete
// them while they are in use: who comes next would make a new file and lock
// that. A holder finds out when its lease is renewed, within a third of its
// TTL, and its lease is lost; the new holder's token is higher. So the
// directory is no place for a cleaner of temporary files. A file that nobody
// uses may go: its name's next token comes from the clock.
//
// Waiters of different processes are served in no particular order. In
// practice each gets its turn; but one who unlocks and locks again at once may
// be faster than those who wait. Inside one Client it is always first come,
// first served.
//
// A process that is stopped (SIGSTOP, a debugger) or stuck keeps what it holds;
// [locker.Options.MaxHold] ends a hold that only its goroutine is stuck in.
//
// # Threads
//
// Waiting pins one thread for each name that this Backend waits for. A wait
// that was given up cannot be called back from the kernel: its thread stays
// until the lock is granted, then lets go at once, unless the next waiter for
// that name has adopted it by then. It may so outlive Close. No more than 256
// names are waited for in that way; those beyond are polled by the Client.
//
// Each lock that is held, and each name that is waited for, takes a file
// descriptor.
//
// # Children
//
// The lock belongs to the open file, and [locker.Lease.As] gives that to those
// who pass a **os.File. Its descriptor is closed on exec; a child that is given
// it all the same ([os/exec.Cmd.ExtraFiles]) has the lock together with its
// parent: if the parent dies, the lock stays until the child ends, too.
// Unlock, however, frees the lock for both, and so does Close of the Client. A
// parent that wants to leave the lock to its child ends without either. Do not
// close the file or unlock it by hand: the lease would not know before it is
// renewed, or not at all.
//
// # Files
//
// The file's name is the lock's name: small letters, digits and -_.,:@=+ stand
// for themselves, a capital letter is a ^ and the small letter, and any other
// byte a % and two hexadecimal digits; .lock follows. "Orders/42" is
// ^orders%2f42.lock. There are no capitals, and nothing but ASCII, so that no
// two names meet on a file system that ignores case or normalizes Unicode. A
// name that would be longer than 143 bytes, what the strictest of the usual
// file systems takes, ends in ~ and its SHA-256 instead.
//
// A file's content is for people: the name, the token, and who holds it,
// with the process ID as the holder sees it. A file with anything else in it is
// left alone, with an error.
//
// # Several users
//
// Whoever can open a lock file can hold the lock for ever, so the directory is
// made with mode 0700, and [DefaultDir] is one user's own: processes of two users
// exclude each other only in a directory that both were given. It has to be made
// beforehand, with a group that they share (as root):
//
//	groupadd locks; usermod -a -G locks alice
//	install -d -m 2770 -g locks /var/lib/locker
//
// and each of them is given file:///var/lib/locker. The files then let that group
// lock, too. A directory that is open to all, as /tmp is, lets every user of the
// host hold every lock, or delete its file.
//
// # Kept after its holder
//
// A lock that is taken with [locker.MinHold] is kept that long also if its
// process ends: the lock file says until when, and whoever locks the file reads
// that first. It goes by the clock of the host: one that is set forward ends it
// early, one that is set back keeps it for no longer than MinHold again. `flock`
// of a shell script does not know about it.
//
// # URL
//
//	file:///absolute/directory
//
// has no host and no parameters of its own. The directory is made if it is missing.
package file
