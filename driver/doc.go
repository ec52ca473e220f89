// Package driver defines what a lock service must be able to do. It is for authors of backends for
// package locker. Programs that want a lock need none of it: they pass a [Backend] to locker.New, or a
// URL to locker.Open.
//
// A backend implements two interfaces: [Backend] (one attempt to acquire a name, with the [Guarantees]
// of the service) and [Hold] (what was acquired: renew it, release it, undo it). For locker.Open it has
// an [Opener]. What only some services can do are abilities: interfaces of one or a few methods, such
// as [Notifier] and [Operator], which the engine finds by type assertion. [Undo] and [Poll] help with
// what most backends must do.
//
// Package conformance tests a backend against everything specified here. Its documentation has a
// complete example.
package driver
