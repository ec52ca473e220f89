// Package proof has the tests of compare that need what the library must not:
// porcupine, which the checker has to agree with, and a browser, in which the
// page of a report is looked at. It is a module of its own, so that neither is
// in the library's go.mod.
package proof
