# Everything here is plain go; the targets only spare typing.
export CGO_ENABLED ?= 0

.PHONY: build test race lint generate fuzz bench e2e demo

build: ## the binary, static, in ./agenttrace-bin
	go build -trimpath -ldflags "-s -w" -o agenttrace-bin ./cmd/agenttrace

test:
	go test ./...

race:
	CGO_ENABLED=1 go test -race -short -skip 'TestConformance|TestTurnCost' ./agenttrace/... ./acplog ./redact ./session/store/... ./session/inspect ./session/sdkdata ./session/spool ./exporter/... ./processor/... ./examples/...
	CGO_ENABLED=1 go test -race -short -run 'Concurrent|SameRows|Flush' ./session/ingest ./session/recorder

lint:
	go vet ./...
	go vet -tags e2e ./internal/e2e/...
	go tool -modfile=tools/lint/go.mod golangci-lint run

generate: ## files that are written by programs; CI checks that they are current
	go generate ./...
	go test ./semconv -run TestConventions -update

fuzz: ## every fuzz target for FUZZTIME
	.ci/fuzz $(or $(FUZZTIME),10s)

bench: ## each beside its peer or floor, in the same run
	go test -run '^$$' -bench . -benchmem ./agenttrace ./session/... ./exporter/... ./collector/...

e2e: ## against a real Jaeger, which is built once and cached
	go test -tags e2e -count=1 -timeout 20m ./internal/e2e/...

demo:
	go run ./cmd/agenttrace demo
