#!/usr/bin/env bash
# Measures handovers by seal on a real API server, against as many plain patches, and writes under a sealed term. Prints
# Markdown tables; progress goes to standard error.
# Usage: bench-seal.sh   Environment: SIZES are the numbers of guarded objects, PAIRS how often each handover is measured,
# MEMORY a number of objects of which only the manager's memory is measured (0: not), ROUNDS how often writes are measured,
# CELL for how long each time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

binaries=$(mktemp -d)
# A failed run must not leave files behind; the program itself ends its processes.
trap 'rm -rf "$binaries"' EXIT

KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)
export KUBEBUILDER_ASSETS
echo "bench: compiling" >&2
CGO_ENABLED=0 go build -trimpath -o "$binaries/" ./cmd/manager ./test/bench

"$binaries/bench" seal -manager="$binaries/manager" -sizes="${SIZES:-10,1000,10000}" -pairs="${PAIRS:-7}" \
  -memory="${MEMORY:-100000}" -rounds="${ROUNDS:-7}" -cell="${CELL:-1s}"
