// Package driver is what a lock service has to be able to do, for those who write a backend
// of package locker. Programs that want a lock need none of it: they give a [Backend] to
// locker.New, or a URL to locker.Open.
//
// A backend implements two interfaces: [Backend] (one attempt to acquire a name, with
// the [Guarantees] of the service) and [Hold] (what was acquired: renew it, release it, undo
// it). For locker.Open it has an [Opener]. What only some services can do are abilities:
// interfaces of one or a few methods, such as [Notifier] and [Operator], which the engine finds
// by type assertion. [Undo] and [Poll] are help with what most backends have to do.
//
// Package conformance tests a backend against everything that is said here. Its
// documentation has a complete example.
package driver
