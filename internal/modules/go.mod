// A module of its own, so that what it needs is no dependency of the library.
module github.com/golockers/locker/internal/modules

go 1.26.0

require golang.org/x/mod v0.43.0
