# Everything here is plain go; the targets only spare typing.
export CGO_ENABLED ?= 0

.PHONY: build release test long contrib race lint systems fuzz bench e2e demo secrets kubeconform grafana site

build: ## the binary, static, in ./agenttrace-bin
	go build -trimpath -ldflags "-s -w" -o agenttrace-bin ./cmd/agenttrace

PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
VERSION ?= $(shell git describe --tags --always --dirty)

release: ## static binaries for every platform in ./dist, their checksums, npm packages and Homebrew formula; VERSION is that of the tag
	rm -rf dist
	for p in $(PLATFORMS); do \
	  os=$${p%/*} arch=$${p#*/} name=agenttrace_$(VERSION)_$${p%/*}_$${p#*/}; \
	  test $$os = windows && suffix=.exe || suffix=; \
	  CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o dist/$$name$$suffix ./cmd/agenttrace || exit 1; \
	done
	deploy/package dist $(VERSION)

test: ## what a newcomer runs: Go alone, a few minutes
	go test ./...

long: ## all rounds of the suites that deliver, generate and kill at random; needs PostgreSQL and haproxy
	.ci/long

contrib: ## the adapters of frameworks, each a module of its own
	for m in contrib/*/go.mod; do (cd $${m%/go.mod} && go mod tidy -diff && go vet ./... && go test -timeout 20m ./...) || exit 1; done

race: ## where goroutines share something; tests of rows, which do one thing at a time, show the detector nothing
	CGO_ENABLED=1 go test -race -timeout 20m ./agenttrace/... ./acplog ./session/spool ./exporter/... ./processor/... ./examples/...
	CGO_ENABLED=1 go test -race -run 'Busy|Cancel|Close|Concurrent|Flush|Follow|Group|Outbox|Plans|Readers|Rebuilt|SameRows|While' \
	  ./session/store/sqlite ./session/ingest ./session/recorder

lint:
	go tool -modfile=tools/lint/go.mod golangci-lint run --build-tags e2e,long # vets, too
	for m in contrib/*/go.mod; do \
	  (cd $${m%/go.mod} && go tool -modfile=$(CURDIR)/tools/lint/go.mod golangci-lint run) || exit 1; \
	done

systems: ## that the tests compile on other systems; it compiles all that they import twice more, some ten minutes
	for os in darwin windows; do GOOS=$$os go vet ./... || exit 1; done

fuzz: ## every fuzz target for FUZZTIME
	.ci/fuzz $(or $(FUZZTIME),10s)

bench: ## each beside its peer or floor, in the same run
	go test -run '^$$' -bench . -benchmem ./agenttrace ./session/... ./exporter/... ./collector/...

secrets: ## gitleaks, which knows nothing of how agenttrace redacts, judges its own examples and what was stored and forwarded
	cd tools/gitleaks && go test ./...
	dir=$$(mktemp -d) && AGENTTRACE_EVIDENCE=$$dir go test -count=1 -run 'Secrets|Corpus' ./redact ./collector && cd tools/gitleaks && AGENTTRACE_EVIDENCE=$$dir go test -count=1 -run Evidence . && rm -r $$dir

kubeconform: ## the manifests of deploy/kubernetes against the schemas of Kubernetes
	cd tools/kubeconform && go test ./... && ./check ../../deploy/kubernetes

grafana: ## the dashboards of deploy/grafana against Grafana's schema
	cd tools/grafana && go test ./...

site: ## the documentation as pages in docs/site; a dead link fails
	rm -rf docs/site
	cd tools/site && go vet . && go test -count=1 . && go run . ../.. ../../docs/site

e2e: ## what docker-compose.yml starts, without Docker; Jaeger is built once and cached
	go test -tags e2e -count=1 -timeout 20m ./internal/e2e/...
	go test -tags e2e -count=1 -run DuckDB ./internal/cli

demo:
	go run ./cmd/agenttrace demo
