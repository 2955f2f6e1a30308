#!/usr/bin/env bash
# Fails if the work tree differs from what git has (changes must at least be staged) or holds files that git does not know.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! git diff --exit-code; then
  echo "verify: the files above differ after generating: run 'make manifests generate api-docs plugin-docs metrics-docs chart' and add the result" >&2
  exit 1
fi
untracked=$(git ls-files --others --exclude-standard)
if [[ -n $untracked ]]; then
  printf 'verify: files that git does not know:\n%s\n' "$untracked" >&2
  exit 1
fi
echo "verify: everything generated is up to date"
