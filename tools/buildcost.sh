#!/usr/bin/env bash
# Prints what it costs to build and to start the program: CPU seconds of compiling from an empty build cache by part,
# packages by part, the size of the stripped binary, and CPU seconds and memory of `agenttrace version`. Needs jq.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
export CGO_ENABLED=0 GOCACHE=$dir/cache

go mod download
go build -trimpath -ldflags '-s -w' -debug-actiongraph="$dir/actions.json" -o "$dir/agenttrace" ./cmd/agenttrace

jq -r '
  def part:
    if startswith("github.com/agenttrace/") then "agenttrace"
    elif test("^(modernc.org|zombiezen.com)/") then "SQLite"
    elif test("^github.com/jackc/") then "PostgreSQL"
    elif test("opentelemetry-collector-contrib|^go.opentelemetry.io/collector") then "OpenTelemetry Collector"
    elif test("^go.opentelemetry.io/") then "OpenTelemetry"
    elif test("^google.golang.org/") then "gRPC and protobuf"
    elif test("^[^/]*\\.[^/]*/") then "other modules"
    else "standard library" end;
  [.[] | select(.Mode == "build" or .Mode == "link") |
    {part: (if .Mode == "link" then "linking" else .Package | part end),
     cpu: (((.CmdUser // 0) + (.CmdSys // 0)) / 1e9), packages: (if .Mode == "build" then 1 else 0 end)}] |
  . + map(.part = "all") | group_by(.part) | map({part: .[0].part, cpu: (map(.cpu) | add), packages: (map(.packages) | add)}) |
  sort_by(.cpu) | .[] | "\(.part)\t\(.cpu * 10 | round / 10) CPU-s\t\(.packages) packages"' "$dir/actions.json" | column -ts $'\t'

printf 'stripped binary: %d MB\n' $(($(stat -c %s "$dir/agenttrace") / 1000000))
TIMEFORMAT='%U %S'
cpu=$({ time for _ in 1 2 3 4 5 6 7 8 9 10; do "$dir/agenttrace" version >/dev/null; done; } 2>&1 | awk '{printf "%.3f", ($1 + $2) / 10}')
printf 'agenttrace version: %s CPU-s\n' "$cpu"
