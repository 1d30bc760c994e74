# operatord: `make help` lists what there is. Needs Go and make; `make test` names what else it needs.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO        ?= go
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X main.version=$(VERSION)
KUBE      := v1.37.2
DATA_DIR  ?= $(CURDIR)/.data
FUZZTIME  ?= 20s
ROUNDS    ?= 100
WALKS     ?= 20000
BIN       := $(CURDIR)/bin

# Every Go module of the repository.
MODULES   := $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.data/*' | sort))
# The module whose tests drive a daemon: it has targets of its own.
DRIVERS   := ./test

export OPERATORD_BIN      := $(BIN)/operatord
export OPERATORD_RACE_BIN := $(BIN)/operatord-race
export KUBECTL            := $(BIN)/kubectl

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Go from 1.21 on fetches the version that go.mod names; an older one only says that it can't read go.mod.
.PHONY: go
go:
	@command -v $(GO) >/dev/null || { echo "there is no $(GO): install Go 1.21 or later (https://go.dev/dl/), and put its bin directory in PATH" >&2; exit 1; }
	@case "$$(cd / && $(GO) version)" in *" go1."?" "*|*" go1."?.*|*" go1.1"?" "*|*" go1.1"?.*|*" go1.20"*) \
	  echo "$$(cd / && $(GO) version) is too old: Go 1.21 or later fetches by itself the one that is needed (https://go.dev/dl/)" >&2; exit 1;; esac

.PHONY: build
build: go ## bin/operatord
	@test -e bin/operatord || echo "building bin/operatord; the first time this takes minutes and says little"
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/operatord ./cmd/operatord

.PHONY: run
run: build ## build, serve, apply a sample Cluster, say what to try next (DATA_DIR=.data)
	@$(GO) build -o bin/run ./deploy/run
	@exec bin/run -bin bin/operatord -data-dir '$(DATA_DIR)' -sample deploy/samples/cluster.yaml

.PHONY: kubectl
kubectl: bin/kubectl ## bin/kubectl, at the version the tests use

bin/kubectl: tools/kubectl/go.mod tools/kubectl/main.go
	cd tools/kubectl && $(GO) build -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBE)' -o $(BIN)/kubectl .

bin/staticcheck: tools/staticcheck/go.mod
	cd tools/staticcheck && $(GO) build -o $(BIN)/staticcheck honnef.co/go/tools/cmd/staticcheck

.PHONY: race
race: go ## bin/operatord-race, the daemon that the tests drive
	CGO_ENABLED=1 $(GO) build -race -o bin/operatord-race ./cmd/operatord

.PHONY: generate
generate: ## regenerate what is generated (CRDs, deep copies)
	@for m in $(MODULES); do (cd $$m && $(GO) generate ./...); done

# program:package of everything that tests run beside Go
NEEDED := gcc:gcc promtool:prometheus curl:curl git:git setpriv:util-linux

.PHONY: needed
needed:
	@missing=0; for n in $(NEEDED); do \
	  command -v $${n%%:*} >/dev/null || { echo "missing: $${n%%:*} (Debian package $${n#*:})" >&2; missing=1; }; done; \
	  if [ $$missing = 1 ]; then echo "install the packages above, then run make test again" >&2; exit 1; fi

.PHONY: test
test: needed lint unit conformance e2e ## everything CI needs

.PHONY: unit
unit: ## unit, table and property tests of every module, with -race
	@for m in $(filter-out $(DRIVERS),$(MODULES)); do \
	  tested=$$(cd $$m && $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); \
	  [ -n "$$tested" ] || continue; \
	  echo "== unit tests of $$m"; (cd $$m && CGO_ENABLED=1 $(GO) test -race -timeout 20m $$tested); done

.PHONY: lint
lint: bin/staticcheck ## gofmt, go vet, staticcheck
	@dirty=$$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l); \
	  if [ -n "$$dirty" ]; then echo "gofmt would change:"; echo "$$dirty"; exit 1; fi
	@for m in $(MODULES); do \
	  pkgs=$$(cd $$m && $(GO) list ./...); [ -n "$$pkgs" ] || continue; \
	  echo "== vet and staticcheck of $$m"; (cd $$m && $(GO) vet ./... && $(BIN)/staticcheck ./...); done

.PHONY: conformance
conformance: race ## recorded answers of the real kube-apiserver, replayed
	cd test && $(GO) build -o $(BIN)/with ./with
	cd test/conformance && $(GO) build -o $(BIN)/conformance .
	cd test/conformance && $(BIN)/with -bin $(BIN)/operatord-race -serve --operators= -- \
	  $(BIN)/conformance run --timeout 60s --baseline baseline.txt cases

.PHONY: e2e
e2e: race kubectl ## kubectl and real processes against the daemon built with -race
	cd test && $(GO) test -count=1 -timeout 30m ./e2e/

.PHONY: robustness
robustness: race kubectl ## kill -9 under load, many rounds (ROUNDS=100)
	cd test && OPERATORD_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 60m -v -run 'TestS10|TestS62|TestRestoreSurvives' ./e2e/

.PHONY: chaos
chaos: race kubectl ## kill members, leaders and the daemon at random, and watch it heal (ROUNDS=100)
	cd test && OPERATORD_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 60m -v -run 'TestChaos' ./e2e/

.PHONY: power-cut
power-cut: ## as root: shut an ext4 file system down under a writing store, and look for what was acknowledged (ROUNDS=20)
	@for n in mkfs.ext4:e2fsprogs mount:mount; do command -v $${n%%:*} >/dev/null || \
	  { echo "missing: $${n%%:*} (Debian package $${n#*:}): install it, then run make power-cut again" >&2; exit 1; }; done; \
	  [ "$$(id -u)" = 0 ] || { echo "power-cut mounts a file system, which takes root: sudo make power-cut" >&2; exit 1; }
	OPERATORD_POWER_CUTS=$(if $(filter file,$(origin ROUNDS)),20,$(ROUNDS)) $(GO) test -count=1 -timeout 5m -v -run '^TestPowerCutOfADisk$$' ./internal/storage/bolt

.PHONY: walks
walks: ## random walks of the Cluster operator with kills between any two things it does (WALKS=20000)
	$(GO) test -count=1 -timeout 60m -run '^TestConverges' ./internal/operator/cluster -rapid.checks $(WALKS)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s)
	@grep -rl --include='*_test.go' '^func Fuzz' . | xargs -rn1 dirname | sort -u | while read -r d; do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go | cut -c6-); do \
	    echo "== $$d $$f"; (cd $$d && $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) .); done; done

.PHONY: bench
bench: build ## the figures that README gives
	cd test && $(GO) run ./bench -bin $(BIN)/operatord

.PHONY: clean
clean: ## what was built; data of `make run` stays
	rm -rf bin dist
