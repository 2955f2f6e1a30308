#!/usr/bin/env bash
# Checks the linters' configuration files against the schema that belongs to the pinned linter, without the network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

lint=github.com/golangci/golangci-lint/v2
# A module that was never used has no folder yet.
go -C hack/tools/lint mod download "$lint"
dir=$(go list -modfile=hack/tools/lint/go.mod -m -f "{{.Dir}}" "$lint")
for file in "$@"; do
  go tool -modfile=hack/tools/lint/go.mod golangci-lint-kube-api-linter config verify \
    --schema="$dir/jsonschema/golangci.jsonschema.json" --config="$file"
  echo "lint-config: $file is valid"
done
