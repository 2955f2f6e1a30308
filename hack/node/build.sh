#!/usr/bin/env bash
# Builds kubelet, kube-scheduler and kube-proxy from the module version that go.mod beside this file pins, once, into a cache
# outside the work tree, and prints the folder that holds them on standard output. The rest of the control plane comes from
# hack/controlplane; both use the same flags, so that most packages are compiled already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
say() { echo "node: $*" >&2; }

kube=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
# The date stands for the release, not for this build: the same sources give the same bytes.
date=2026-11-01T00:00:00Z
# The key covers everything that changes the result.
key=$(cat go.mod go.sum build.sh | sha256sum | cut -c1-12)
cache="${FENCEDLEASE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fencedlease}/node"
out="$cache/kube-$kube-$(go env GOVERSION)-$(go env GOOS)-$(go env GOARCH)-$key"
if [[ -e "$out/.complete" ]]; then echo "$out"; exit 0; fi

mkdir -p "$cache"
# One builder at a time; the others wait and find the result.
exec 9>"$cache/.lock"
flock -n 9 || { say "another build is running, waiting for it"; flock 9; }
if [[ -e "$out/.complete" ]]; then echo "$out"; exit 0; fi

work=$(mktemp -d "$cache/.building.XXXXXX")
pid=
trap '[[ -z $pid ]] || kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
say "building kubelet, kube-scheduler and kube-proxy $kube into $out (once; about three minutes on two cores after hack/controlplane)"

export CGO_ENABLED=0 GOFLAGS=-mod=readonly
packages=(k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kube-proxy)
total=$(go list -deps "${packages[@]}" | wc -l)
v=k8s.io/component-base/version
IFS=. read -r major minor _ <<<"${kube#v}"
go build -v -p "${CONTROLPLANE_PARALLEL:-$(getconf _NPROCESSORS_ONLN)}" -trimpath -o "$work/" \
  -ldflags "-s -w -X $v.gitVersion=$kube -X $v.gitMajor=$major -X $v.gitMinor=$minor -X $v.gitTreeState=clean -X $v.buildDate=$date" \
  "${packages[@]}" 2>"$work/log" 9>&- &
pid=$! begin=$SECONDS
while kill -0 "$pid" 2>/dev/null; do
  sleep 1
  if (( (SECONDS - begin) % 10 == 9 )); then say "  $(wc -l <"$work/log") of at most $total packages compiled, $((SECONDS - begin)) s"; fi
done
wait "$pid" || { tail -40 "$work/log" >&2; say "the build failed"; exit 1; }
pid=
rm -f "$work/log"
"$work/kubelet" --version >&2
touch "$work/.complete"
chmod 755 "$work"
mv "$work" "$out"
trap - EXIT
say "ready after $((SECONDS - begin)) s"
echo "$out"
