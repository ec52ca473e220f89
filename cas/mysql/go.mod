// A module of its own, so that what MySQL's driver needs moves no module of a program that has locks elsewhere.
module github.com/golockers/locker/cas/mysql

go 1.26.0

require (
	github.com/go-sql-driver/mysql v1.8.1
	github.com/golockers/locker v0.0.0
	github.com/stretchr/testify v1.8.0
	go.uber.org/goleak v1.3.0
)

require (
	filippo.io/edwards25519 v1.1.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sys v0.10.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
