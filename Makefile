# What CI runs, and what a contributor needs. `make test` is enough on a bare
# Debian or Ubuntu machine with Go: it installs the servers that are missing.

GOLANGCI_LINT_VERSION := v2.15.0
BIN := $(CURDIR)/.cache/bin
LINT := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
GORELEASER_VERSION := v2.16.0
GORELEASER := $(BIN)/goreleaser-$(GORELEASER_VERSION)
GATE := $(BIN)/gate
LARGEST := 23500000 # bytes of the released command for linux/amd64
ROUNDS ?= 6
GOVULNCHECK_VERSION := v1.1.4
BENCHSTAT := $(BIN)/benchstat-v0.0.0-20260908200009-22c9c6c9d4da
PROVE := '^Test(Ageing|Fleet|Prove)'
# Events that are routine in production: connections that are closed, passwords, certificates and addresses that change.
# Redis' tests of them run on the newest server, too; the installed one is the oldest that is supported, or close to it.
ROUTINE := '^Test(IdleConnections|AnAddressThatMoves|APasswordThatWasChanged|ProveACertificate|ProveIdleConnections|TheRights|EachRight|NothingStays|Check|AMinorityThatRefuses)'
NEWEST_REDIS = $$(ls $(BIN)/valkey-newest/valkey-server 2>/dev/null)
BY_NAME := '^Test(Search|ManyNamesOverHours)'
ON_EACH_POSTGRES := '^Test(Histories|ConnectionsThat|IdleSessions|ProveCredentials|ProveAnAddress|ATable|WhatIsInTheWay)'
VIRTUAL := '^Test(GoodBackendsKeepEveryRule|EveryKindInVirtualTime)'
FLAWS := '^TestBrokenBackendsBreakARule'
# make test RACE=-race has the race detector watch the packages, and takes twice as long. Each night they are run so.
RACE ?=
# The histories of conformance are the same in each run, so that what is red is the change and not the draw. Every night
# others are drawn, as by `make prove CONFORMANCE_SEED=`.
export CONFORMANCE_SEED ?= 1
# Without what a debugger needs, a test is linked in two thirds of the time.
LINK := -ldflags=-w
AT_ONCE := $(if $(filter 1 2,$(shell nproc 2>/dev/null)),4,5)
DRIVERS := github.com/redis/go-redis/v9 go.etcd.io/etcd/client/v3 go.etcd.io/etcd/api/v3 github.com/go-zookeeper/zk \
	github.com/jackc/pgx/v5 google.golang.org/grpc go.opentelemetry.io/otel/sdk/metric github.com/nats-io/nats.go \
	github.com/go-sql-driver/mysql github.com/prometheus/client_golang github.com/spf13/cobra github.com/stretchr/testify
# The modules of go.work with the newest of these.
NEWEST := $(CURDIR)/scripts/newest/go.work

.PHONY: all test ready compiled prove prove-flaws search prove-guards $(GATE) test-newest newest servers servers-prove lint release release-check vulnerabilities build-everywhere packages bench compare-peers clean

all: lint build-everywhere test

# Four packages at a time on two cores, else five, the longest first, and as many tests of each: they wait more than
# they work, and each has servers of its own. More would make the times that they measure meaningless. What works
# more than it waits goes on beside them with what they leave of the machine; with the race detector it would take
# three to five times as long. The gate says at the end what failed and where the time went.
# LOCKER_REQUIRE_SERVERS makes a missing server a failure; plain `go test ./...` skips what needs one, and says so.
# `make lint` vets everything, so that no test does it.
TESTS = -p $(AT_ONCE) -parallel $(AT_ONCE) $(RACE) $(LINK) -short -shuffle=on -timeout 15m -skip $(BY_NAME)\|$(VIRTUAL)\|$(FLAWS) \
	./etcd ./zookeeper ./redlock ./conformance ./single ./postgres ./compare ./internal/memlock ./file ./cmd/locker work \
	-- -p 1 -nice $(LINK) -short -run $(VIRTUAL) ./conformance ./cas ./internal/memlock
test: ready
	LOCKER_REQUIRE_SERVERS=1 $(GATE) $(TESTS)

# Packages are installed while the tests are compiled, and then etcd, which shares with them what both use. All is
# compiled before the first test runs: beside a compiler the tests would measure the machine.
ready:
	$(MAKE) --no-print-directory -j2 $(if $(RACE),servers-prove,packages) compiled

compiled: $(GATE)
	@set -e; began=$$(date +%s); echo "Compiling all tests: some minutes the first time."; \
	(cd internal/etcdserver && GOWORK=off go list -deps go.etcd.io/etcd/server/v3 >/dev/null 2>&1) & \
	$(GATE) -c $(TESTS); \
	CGO_ENABLED=0 go list -export -deps ./file/testdata/defaultdir >/dev/null; \
	./scripts/build etcd; \
	echo "Compiled in $$(($$(date +%s) - began)) s."

# What `make test` leaves out since it takes longer: what months bring, fleets, further deployments, the full form of the
# suites, modules of their own. Such tests call lab.NeedProve, and are named for it: CONTRIBUTING.md. Two packages at a
# time, since many of them start several servers for one test, and one of what else is run. BY_NAME are those that are
# not to run with -race; with it, SQLite takes minutes to compile. HISTORIES is how long those of conformance take on
# each deployment. WATCHED= has the race detector watch the engine's tests and the histories alone: for the rest, the
# tests that `make test` has compiled are used. KUBERNETES= leaves out what needs an API server of Kubernetes, which takes
# minutes to compile.
HISTORIES ?= 60s
WATCHED ?= -race
KUBERNETES ?= kube-apiserver
ENGINE := . ./memory ./file ./bridge ./cas ./slots ./election ./adapt ./observe/otel ./observe/prometheus ./internal/... \
	./internal/redisnode/...
PROOFS = -p 2 $(WATCHED) $(LINK) -timeout 20m -run $(PROVE) -skip $(if $(KUBERNETES),'^$$','^TestProveKubernetes') work \
	-- -p 1 -race $(LINK) -skip $(BY_NAME)\|$(VIRTUAL)\|$(PROVE) $(ENGINE) \
	-- -after -p 1 -race $(LINK) -run '^TestConformance$$' ./etcd ./zookeeper ./postgres ./single ./redlock \
	-- -after -p 1 $(LINK) -run '^TestManyNamesOverHours' . \
	-- -after -p 1 -C internal/sqltest $(LINK) ./... \
	-- -after -p 1 -C adapt/internal/proof $(LINK) -parallel 6 ./... \
	-- -after -p 1 -C compare/internal/proof $(LINK) ./... \
	-- -after -p 1 -C examples $(LINK) ./etcd ./zookeeper
prove: servers-prove $(GATE)
	./scripts/build $(KUBERNETES) nats-server
	CONFORMANCE_HISTORIES=$(HISTORIES) LOCKER_PROVE=1 LOCKER_REQUIRE_SERVERS=1 $(GATE) $(PROOFS)
	LOCKER_REDIS_SERVER=$(NEWEST_REDIS) LOCKER_PROVE=1 LOCKER_REQUIRE_SERVERS=1 $(GATE) -p 2 -race $(LINK) -timeout 10m -run $(ROUTINE) ./single ./redlock
	set -e; for pg in oldest newest; do bin=$(BIN)/postgres-$$pg/bin; test ! -x $$bin/postgres || \
		LOCKER_POSTGRES=$$bin/postgres LOCKER_INITDB=$$bin/initdb LOCKER_PROVE=1 LOCKER_REQUIRE_SERVERS=1 $(GATE) \
		$(LINK) -timeout 10m -run $(ON_EACH_POSTGRES) ./postgres; done
	$(MAKE) --no-print-directory -j2 prove-guards prove-flaws
	./scripts/modules alone vet ./...
	./scripts/modules prove

prove-flaws:
	$(GATE) -p 1 -nice $(LINK) -run $(FLAWS) ./conformance -- -p 1 -nice $(LINK) -run $(VIRTUAL) ./cas ./internal/memlock

# What only computes, for long, or compiles other drivers: a machine of two cores does it at night.
search: servers-prove $(GATE)
	go test $(LINK) -vet=off -timeout 20m -run '^TestSearch' ./redlock ./single ./cas ./etcd ./internal/session ./internal/queue # too many for -race
	LOCKER_PROVE=1 go test $(LINK) -vet=off -timeout 20m -run $(VIRTUAL)\|$(FLAWS) ./conformance ./cas # with more seeds
	CROSSINGS=8000 go test $(LINK) -vet=off -count=1 -run '^TestCrossings' .
	cd compare/internal/proof && LOCKER_HISTORIES=100000 go test $(LINK) -vet=off -run '^TestTheChecker' ./...
	cd examples && $(GATE) $(LINK) ./s3
	./scripts/modules alone test -short -run '^Test(Conformance|Suite)$$' ./...
	./scripts/modules newest vet ./...
	$(MAKE) test-newest

# Guarded writes on every store with a server while its network breaks: none is stale. GUARDS_FOR is how long each.
GUARDS_FOR ?= 20s
prove-guards: servers-prove
	@log=$(CURDIR)/.cache/guards.log; rm -f $$log; \
	campaign() { (cd $$1 && LOCKER_GUARD_CAMPAIGN=$(GUARDS_FOR) LOCKER_REQUIRE_SERVERS=1 \
		go test -vet=off -count=1 -timeout 30m -v -run "$$2" $$3 $$4) >>$$log 2>&1 || { cat $$log; exit 1; }; }; \
	campaign . '^TestSuite$$/network' ./fencing/redisguard && \
	campaign . '^TestSuite$$/.*/network' ./fencing/pgxguard && \
	campaign internal/sqltest '^Test(Postgres|MariaDB)$$/^suite$$/network' . && \
	campaign examples '^TestSuite$$/network' ./etcd ./zookeeper && \
	awk '/guarded writes:/ { n += $$2; setups++; print } END { print n, "guarded writes, none of them stale, on", setups, "set-ups"; exit setups != 7 }' $$log

# Each go.mod asks for the oldest drivers that work: the backends' suites once more with the newest, on one deployment
# each (and Redis Cluster, which is other code in the driver), and with the newest ZooKeeper and Valkey.
test-newest: servers-prove $(GATE)
	LOCKER_REDIS_SERVER=$(NEWEST_REDIS) LOCKER_ZOOKEEPER_JAR=$$(ls $(BIN)/zookeeper-newest/zookeeper.jar 2>/dev/null) LOCKER_PROVE=1 LOCKER_REQUIRE_SERVERS=1 GOWORK=$(NEWEST) $(GATE) -p 5 -timeout 10m \
		-run '^Test(Prove)?Conformance$$/^(Cluster|[a-z-]+)$$' ./single ./redlock ./etcd ./zookeeper ./postgres

newest:
	cd scripts/newest && GOWORK=off go get $(addsuffix @latest,$(DRIVERS))
	GOWORK=$(NEWEST) go build work

$(GATE):
	go build -o $@ ./internal/gate

servers: packages
	./scripts/build etcd

# What make prove needs besides.
servers-prove: servers
	./scripts/servers prove
	./scripts/etcd before
	./scripts/zookeeper
	./scripts/valkey
	./scripts/postgres

packages:
	./scripts/servers
	./scripts/etcd

# govet is among the linters.
lint: $(LINT)
	./scripts/modules tidy -check
	test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(LINT) run $$(./scripts/modules list | sed 's|$$|/...|')
	set -e; for module in internal/sqltest internal/modules examples compare/internal/proof adapt/internal/proof compare/peers; do \
		(cd $$module && $(LINT) run ./...); done

$(LINT):
	GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(BIN)/golangci-lint $@

# The release as it would be built, for this platform alone.
release-check: $(GORELEASER)
	$(GORELEASER) check
	$(GORELEASER) build --snapshot --single-target --clean --output .cache/locker
	test "$$(wc -c <.cache/locker)" -le $(LARGEST)
	.cache/locker --version | grep '^locker version v[0-9]'

# On a tag, in CI: GORELEASER_CURRENT_TAG says on which.
release: $(GORELEASER)
	$(GORELEASER) release --clean

# Known holes in what is called, with the versions of go.work: at least those of the released command.
vulnerabilities:
	go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) $$(./scripts/modules list | sed 's|$$|/...|')

$(GORELEASER):
	GOBIN=$(BIN) go install github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)
	mv $(BIN)/goreleaser $@

# Where the tests do not run, the code has to build at least.
BUILT ?= linux/arm64 freebsd/amd64
build-everywhere:
	GOOS=darwin go vet work
	GOOS=windows go vet work
	set -e; for system in $(BUILT); do GOOS=$${system%/*} GOARCH=$${system#*/} go build work; done

BASE ?= fc6f864
bench: servers $(BENCHSTAT)
	BASE=$(BASE) BENCHSTAT=$(BENCHSTAT) ./scripts/bench $(ROUNDS)

$(BENCHSTAT):
	GOBIN=$(BIN) go install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT:$(BIN)/benchstat-%=%)
	mv $(BIN)/benchstat $@

# What locks of other libraries guarantee, beside ours on the same servers (docs/peers.md): service after service, each
# for PEERS_FOR again and again.
PEERS_FOR ?= 8m
compare-peers: servers
	cd compare/peers && go build -o $(BIN)/peers . && for subjects in "redis redislock=redis rueidislock=redis" "redlock redsync=redlock" \
		"etcd etcd-mutex=etcd" "zookeeper zk.lock=zookeeper"; do $(BIN)/peers --for $(PEERS_FOR) $$subjects || test $$? -eq 1 || exit; done

clean:
	rm -rf .cache bin
