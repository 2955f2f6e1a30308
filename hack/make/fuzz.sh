#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME each. Targets are found, not listed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

found=0
for dir in $(grep -rl --include='*_test.go' -E '^func Fuzz[A-Z]' api cmd internal pkg test 2>/dev/null | xargs -r -n1 dirname | sort -u); do
  for target in $(go test -list '^Fuzz' "./$dir" | grep '^Fuzz'); do
    found=$((found + 1))
    echo "fuzz: $target in $dir for ${FUZZTIME:=30s}"
    go test -run='^$' -fuzz="^$target\$" -fuzztime="$FUZZTIME" "./$dir"
  done
done
if ((found == 0)); then echo "fuzz: no target found" >&2; exit 1; fi
echo "fuzz: $found targets passed"
