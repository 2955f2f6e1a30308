#!/usr/bin/env bash
# Writes the Helm chart from the built kustomizations.
# Usage: KUBECTL=<kubectl> chart.sh <install.yaml> <folder>
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ $# -eq 2 ]] || { echo "usage: chart.sh <install.yaml> <folder>" >&2; exit 2; }

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
for part in prometheus certmanager; do
  "${KUBECTL:-kubectl}" kustomize "config/$part" > "$built/$part.yaml"
done
go run ./hack/chart -install "$1" -prometheus "$built/prometheus.yaml" -certmanager "$built/certmanager.yaml" -output "$2"
