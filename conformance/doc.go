// Package conformance is the suite of tests that every [locker.Backend] passes:
// those of this module and those of third parties.
package conformance
