// A module of its own, so that what these tests need is no dependency of the library.
module github.com/golockers/locker/compare/internal/proof

go 1.26.0

replace (
	github.com/golockers/locker => ../../..
	github.com/golockers/locker/backends => ../../../backends
	github.com/golockers/locker/cas/mysql => ../../../cas/mysql
	github.com/golockers/locker/compare => ../..
	github.com/golockers/locker/etcd => ../../../etcd
	github.com/golockers/locker/internal/redisnode => ../../../internal/redisnode
	github.com/golockers/locker/postgres => ../../../postgres
	github.com/golockers/locker/redlock => ../../../redlock
	github.com/golockers/locker/single => ../../../single
	github.com/golockers/locker/zookeeper => ../../../zookeeper
)

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/golockers/locker/compare v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.11.1
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/golockers/locker v0.0.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sys v0.39.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
