// Package proof has the tests of compare with dependencies that the library must not have: porcupine,
// with which the checker must agree, and a browser, which shows the page of a report. It is a separate
// module, so that neither is in the library's go.mod.
package proof
