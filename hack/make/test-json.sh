#!/usr/bin/env bash
# Runs groups of tests one after the other and writes their results as one stream of go test's JSON, so that one summary
# covers all of them. The second group does not begin if the first has failed. Nothing but errors goes to standard error:
# gotestsum counts its lines as such.
# Usage: test-json.sh unit|integration|e2e...   Environment: PKGS limits the packages, TESTFLAGS is added to go test;
# integration needs KUBEBUILDER_ASSETS, see hack/controlplane, and e2e what e2e.sh needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Packages with tests that need a real API server: the files say so by their build tag.
integration_packages() {
  local tagged dir
  tagged=$(grep -rl --include='*_test.go' -E '^//go:build (.*[^a-z_])?integration([^a-z_].*)?$' api cmd examples hack internal pkg test 2>/dev/null || true)
  for dir in $(for f in $tagged; do dirname "$f"; done | sort -u); do
    # Modules of their own, below hack, are not part of this one.
    if [[ $dir != hack/controlplane* && $dir != hack/tools* ]]; then echo "./$dir"; fi
  done
}

for group in "$@"; do
  case "$group" in
    unit)
      # shellcheck disable=SC2086 # lists of words
      go test -json -race -shuffle=on -timeout=30m ${TESTFLAGS:-} ${PKGS:-./...}
      # Modules of their own, which ./... does not reach. Those of large dependencies are built once, without the race
      # detector: nothing of ours runs concurrently in them.
      if [[ -z ${PKGS:-} ]]; then
        # shellcheck disable=SC2086
        go test -C hack/image -json -race -shuffle=on -timeout=10m ${TESTFLAGS:-} ./...
        for module in monitoring/rulestest hack/chart/helmtest; do
          # -count=1: they read files outside of their modules, which the cache of results does not look at.
          # shellcheck disable=SC2086
          go test -C "$module" -json -shuffle=on -count=1 -timeout=10m ${TESTFLAGS:-} ./...
        done
      fi
      ;;
    integration)
      packages=${PKGS:-$(integration_packages)}
      : "${packages:?no tests against an API server were found}" "${KUBEBUILDER_ASSETS:?is not set}"
      # Each package runs a control plane of its own, so packages take turns; what they are made of is compiled before,
      # with all processors.
      if [[ -z ${PKGS:-} ]]; then go build -race ./...; fi
      # shellcheck disable=SC2086
      go test -json -race -shuffle=on -timeout=40m -p=1 -count=1 -tags=integration ${TESTFLAGS:-} $packages
      ;;
    e2e)
      # The specs on a cluster of their own, and, where that is a node of this machine, how it is ended in all ways. What is
      # said beside the results is shown if it explains a failure.
      mkdir -p bin/e2e
      log=bin/e2e/test.log
      if ! E2E_JSON=yes hack/make/e2e.sh test 2>"$log"; then cat "$log" >&2; exit 1; fi
      if [[ ${E2E_PROVIDER:-} == node ]]; then go test -C hack/node -json -tags=e2e -count=1 -timeout=20m .; fi
      ;;
    *) echo "test-json: unknown group $group" >&2; exit 2 ;;
  esac
done
