// Package fencingproof proves with real lock services, real processes and real pauses that
// fencing does what package fencing says. It has tests only.
package fencingproof
