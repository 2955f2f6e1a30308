#!/usr/bin/env bash
# Runs the program beside this file, after building it and, for `up`, everything that the cluster consists of, once, into a
# cache outside the work tree. See `node.sh help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

cache="${FENCEDLEASE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fencedlease}"
export FENCEDLEASE_CACHE=$cache
mkdir -p "$cache"
program=$(mktemp "$cache/.node.XXXXXX")
trap 'rm -f "$program"' EXIT
CGO_ENABLED=0 go build -C "$here" -trimpath -buildvcs=false -o "$program" .
chmod 755 "$program"
final=$cache/node-program
# An older one may be running; it keeps its file.
mv "$program" "$final"
trap - EXIT

if [[ ${1:-} == up ]]; then
  shift
  control=$("$here/../controlplane/build.sh")
  node=$("$here/build.sh")
  export FENCEDLEASE_NODE_PATH=$control:$node
  pause=$node/pause.tar
  if [[ ! -e $pause ]]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    platform=linux/$(go env GOARCH)
    CGO_ENABLED=0 go build -C "$here" -trimpath -buildvcs=false -ldflags="-s -w" -o "$work/pause" ./pause
    go run -C "$here/../image" . -binary "$platform=$work/pause" -program /pause -tag fencedlease.invalid/pause:1 -output "$work/pause.tar" >&2
    mv "$work/pause.tar" "$pause"
    rm -rf "$work"
    trap - EXIT
  fi
  set -- up "$@" "$pause"
fi
exec "$final" "$@"
