#!/usr/bin/env bash
# Builds etcd, etcdutl, kube-apiserver, kube-controller-manager and kubectl from the module versions that go.mod beside
# this file pins, once, into a cache outside the work tree, and prints the folder that holds them on standard output.
# The folder has the layout of setup-envtest's, so that KUBEBUILDER_ASSETS can point to either.
set -euo pipefail

if [[ -n "${KUBEBUILDER_ASSETS:-}" ]]; then
  for b in etcd kube-apiserver kubectl; do
    [[ -x "$KUBEBUILDER_ASSETS/$b" ]] || { echo "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS holds no executable $b: point it to a folder with etcd, kube-apiserver and kubectl, or unset it to build them" >&2; exit 1; }
  done
  echo "$KUBEBUILDER_ASSETS"
  exit 0
fi

cd "$(dirname "${BASH_SOURCE[0]}")"
say() { echo "controlplane: $*" >&2; }

kube=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
etcd=$(go list -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)
arch=$(go env GOOS)-$(go env GOARCH)
# The date stands for the release, not for this build: the same sources give the same bytes.
date=2026-11-01T00:00:00Z

# The key covers everything that changes the result.
key=$(cat go.mod go.sum build.sh | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-12)
cache="${FENCEDLEASE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fencedlease}/controlplane"
out="$cache/kube-$kube-etcd-$etcd-$(go env GOVERSION)-$arch-$key"
if [[ -e "$out/.complete" ]]; then echo "$out"; exit 0; fi

mkdir -p "$cache"
# One builder at a time; the others wait and find the result.
if command -v flock >/dev/null; then exec 9>"$cache/.lock"; flock -n 9 || { say "another build is running, waiting for it"; flock 9; }; fi
if [[ -e "$out/.complete" ]]; then echo "$out"; exit 0; fi

work=$(mktemp -d "$cache/.building.XXXXXX")
trap 'rm -rf "$work"' EXIT
say "building etcd $etcd and Kubernetes $kube into $out (once; about ten minutes on two cores)"

# build NAME PACKAGE...: one go build with a line of progress about every 10 seconds.
build() {
  local flags=$1; shift
  local total log="$work/log"
  total=$(go list -deps "$@" | wc -l)
  go build -v -p "${CONTROLPLANE_PARALLEL:-$(getconf _NPROCESSORS_ONLN)}" -trimpath -ldflags "$flags" -o "$work/" "$@" 2>"$log" &
  local pid=$! begin=$SECONDS tick=0
  trap 'kill $pid 2>/dev/null || true; rm -rf "$work"' EXIT
  while kill -0 $pid 2>/dev/null; do
    sleep 1; tick=$((tick + 1))
    if (( tick % 10 == 0 )); then say "  $(wc -l <"$log") of at most $total packages compiled, $((SECONDS - begin)) s"; fi
  done
  if ! wait $pid; then tail -40 "$log" >&2; say "build of $* failed"; return 1; fi
  trap 'rm -rf "$work"' EXIT
  say "  done in $((SECONDS - begin)) s: $*"
}

export CGO_ENABLED=0 GOFLAGS=-mod=readonly
build "-s -w" go.etcd.io/etcd/server/v3 go.etcd.io/etcd/etcdutl/v3
# The main package of etcd is the server module's root: go names its binary after the module's last element.
[[ -e "$work/server" ]] && mv "$work/server" "$work/etcd"
v=k8s.io/component-base/version
IFS=. read -r major minor _ <<<"${kube#v}"
build "-s -w -X $v.gitVersion=$kube -X $v.gitMajor=$major -X $v.gitMinor=$minor -X $v.gitTreeState=clean -X $v.buildDate=$date" \
  k8s.io/kubernetes/cmd/kubectl k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-apiserver
rm -f "$work/log"
"$work/kube-apiserver" --version >&2
"$work/etcd" --version | head -1 >&2
touch "$work/.complete"
chmod 755 "$work"
mv "$work" "$out"
trap - EXIT
say "ready"
echo "$out"
