// Package proof tries package adapt with the libraries that it is for. It has tests
// only.
package proof
