// A module of its own, so that the drivers are no dependency of the library.
module github.com/golockers/locker/internal/sqltest

go 1.26.0

replace github.com/golockers/locker => ../..
