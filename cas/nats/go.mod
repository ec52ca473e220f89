// A module of its own, so that what NATS' client needs moves no module of a program that has locks elsewhere.
module github.com/golockers/locker/cas/nats

go 1.26.0

require (
	github.com/golockers/locker v0.0.0
	github.com/nats-io/nats.go v1.47.0
	github.com/stretchr/testify v1.8.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/klauspost/compress v1.18.0 // indirect
	github.com/nats-io/nkeys v0.4.11 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/crypto v0.37.0 // indirect
	golang.org/x/sys v0.32.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
