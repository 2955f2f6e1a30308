#!/usr/bin/env bash
# Writes the manager's image as an archive, without a container engine. The same sources and Go version give the same digest.
# Usage: image-archive.sh <image> <archive> <os>/<arch>...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ $# -ge 3 ]] || { echo "usage: image-archive.sh <image> <archive> <os>/<arch>..." >&2; exit 2; }
image=$1 archive=$2
shift 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
binaries=()
for platform in "$@"; do
  binary=$work/${platform//\//-}
  # As in the Dockerfile, where no commit is known.
  CGO_ENABLED=0 GOOS=${platform%%/*} GOARCH=${platform#*/} go build -trimpath -buildvcs=false -ldflags="-s -w" -o "$binary" ./cmd/manager
  binaries+=(-binary "$platform=$binary")
done
mkdir -p "$(dirname "$archive")"
go build -C hack/image -o "$work/image" .
"$work/image" "${binaries[@]}" -tag "$image" -output "$archive"
