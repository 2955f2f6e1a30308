#!/usr/bin/env bash
# Measures the decision alone, then guarded writes against unguarded ones on a real API server.
# Usage: bench.sh   Environment: COUNT is how often each benchmark of the decision runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

echo "bench: the decision alone"
go test -run='^$' -bench=. -benchmem -count="${COUNT:-6}" ./internal/fence/... ./pkg/token/...

if [[ -d test/bench ]]; then
  echo "bench: guarded writes on a real API server"
  KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)
  export KUBEBUILDER_ASSETS
  go test -tags=bench,integration -run='^TestBench' -v -timeout=40m -count=1 ./test/bench
fi
