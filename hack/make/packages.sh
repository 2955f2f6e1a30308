#!/usr/bin/env bash
# Sees to it that programs that tests need are there: as root on Debian by installing them, elsewhere by saying what to
# install. Asks for nothing if all are there.
# Usage: packages.sh <package>=<command or pattern of its path>...
set -euo pipefail

missing=()
for wanted in "$@"; do
  package=${wanted%%=*} probe=${wanted#*=}
  if ! command -v "$probe" >/dev/null && ! compgen -G "$probe" >/dev/null; then missing+=("$package"); fi
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

install="apt-get install -y --no-install-recommends ${missing[*]}"
if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "packages: tests need what Debian has as ${missing[*]}. As root on Debian: $install" >&2
  exit 1
fi
echo "packages: installing ${missing[*]}" >&2

# Nothing may be started by its installation: tests start servers of their own.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
log=$(mktemp)
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive $install -qq; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "packages: installing ${missing[*]} failed" >&2
  exit 1
fi
rm -f "$log"
