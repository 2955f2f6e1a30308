#!/usr/bin/env bash
# Compares guarded writes with others on a real API server, then measures what is done in the manager alone. Prints Markdown
# tables; progress goes to standard error.
# Usage: bench.sh   Environment: ROUNDS is how often each kind of write is measured, CELL for how long each time, BENCHTIME
# how long each benchmark of the second part runs, PROFILE a file for a CPU profile of the manager. The defaults take less
# than six minutes on two cores, once everything is compiled; ROUNDS=25 takes nine minutes and narrows the spread.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

binaries=$(mktemp -d)
# A failed run must not leave files behind; the program itself ends its processes.
trap 'rm -rf "$binaries"' EXIT

KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)
export KUBEBUILDER_ASSETS
echo "bench: compiling" >&2
CGO_ENABLED=0 go build -trimpath -o "$binaries/" ./cmd/manager ./test/bench

"$binaries/bench" -manager="$binaries/manager" -rounds="${ROUNDS:-13}" -cell="${CELL:-1s}" -profile="${PROFILE:-}"

echo "bench: the manager's own work" >&2
echo
echo "What the manager does without network and reads:"
echo
echo "| benchmark | ns | bytes | allocations |"
echo "|---|---|---|---|"
go test -run='^$' -bench='^Benchmark(Decide|Review|Fresh)$' -benchmem -benchtime="${BENCHTIME:-500ms}" \
  ./internal/fence ./internal/webhook/fencing ./internal/leaseview | awk '
  /^Benchmark/ {
    name = $1; sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name); gsub(/_/, " ", name); sub(/\//, ": ", name)
    printf "| %s | %.0f | %d | %d |\n", name, $3, $5, $7
  }
  /^(FAIL|panic|---)/ { print > "/dev/stderr" }'
