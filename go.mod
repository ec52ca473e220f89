// A program that takes a locker.Locker takes this module: it has no driver. Each driver is in a module of its own, in
// the folder of its package; go.work makes one build of a checkout.
module github.com/golockers/locker

go 1.26.0

require (
	github.com/stretchr/testify v1.8.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.10.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
