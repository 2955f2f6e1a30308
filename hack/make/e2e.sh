#!/usr/bin/env bash
# Runs the end-to-end specs (test/e2e) on a real node.
# Usage: e2e.sh setup|test|cleanup
#   setup    builds the images and starts a cluster, which stays
#   test     runs the specs; a cluster that setup has not started is there for the run only, however it ends
#   cleanup  ends the cluster
# Environment: IMG is the image that config/default names; E2E_PROVIDER is kind or node (kind if it and a container engine are
# there); KIND_CLUSTER, KIND_IMAGE and CONTAINER_TOOL are for kind; GINKGO_ARGS are passed on, such as -ginkgo.focus=story.
# E2E_PREVIOUS is the commit that the specs upgrade from; they skip that where git cannot get it, or with
# E2E_REQUIRE_PREVIOUS=yes, as in CI, fail. E2E_JSON=yes prints what the specs tell as go test -json does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { echo "e2e: $*" >&2; }

export CONTAINER_TOOL=${CONTAINER_TOOL:-docker} KIND_CLUSTER=${KIND_CLUSTER:-fencedlease-test-e2e}
# kind knows other engines by a variable of its own.
if [[ $CONTAINER_TOOL != docker ]]; then export KIND_EXPERIMENTAL_PROVIDER=$CONTAINER_TOOL; fi
if [[ -z ${E2E_PROVIDER:-} ]]; then
  if command -v kind >/dev/null && "$CONTAINER_TOOL" info >/dev/null 2>&1; then E2E_PROVIDER=kind; else E2E_PROVIDER=node; fi
fi
export E2E_PROVIDER
node=hack/node/node.sh
out=bin/e2e
image=${IMG:?give the image}
export E2E_NEXT_IMAGE=${image%:*}:${image##*:}-next
export E2E_WORKER_IMAGE=fencedlease.invalid/e2e-worker:1
archives=("$out/manager.tar" "$out/next.tar" "$out/worker.tar")
# What the specs upgrade from, and go back to: a state that was installed somewhere before this one.
previous_commit=${E2E_PREVIOUS:-d1a8936f2b5081a80ff1e87a0997a9292e73f8ad}
previous_image=${image%:*}:${image##*:}-previous

find_kubectl() {
  # With kind the machine's own kubectl will do, and spares the build of a control plane.
  if [[ $E2E_PROVIDER == kind ]] && command -v kubectl; then return; fi
  echo "$(hack/controlplane/build.sh)/kubectl"
}

# find_previous prints the commit that is the previous state. Clones without history fetch it, if they can.
find_previous() {
  local commit
  for commit in "$previous_commit" HEAD~1; do
    if git rev-parse --verify --quiet "$commit^{commit}"; then return; fi
    if [[ $commit != HEAD* ]]; then git fetch --quiet --depth=1 origin "$commit" 2>/dev/null || true; fi
    if git rev-parse --verify --quiet "$commit^{commit}"; then return; fi
  done
  return 1
}

build_previous() {
  local commit
  if ! commit=$(find_previous); then
    say "git has no commit before this one and can get none: the specs of upgrades cannot run"
    rm -f "$out/previous.tar" "$out/previous.yaml"
    return
  fi
  archives+=("$out/previous.tar")
  if [[ -e $out/previous.tar && $(cat "$out/previous.commit" 2>/dev/null) == "$commit" ]]; then return; fi
  say "building the image of $commit, to upgrade from"
  local tree
  tree=$(mktemp -d)
  git archive "$commit" | tar -x -C "$tree"
  "$tree/hack/make/image-archive.sh" "$previous_image" "$PWD/$out/previous.tar" "linux/$(go env GOARCH)" >&2
  "$(find_kubectl)" kustomize "$tree/config/default" | sed "s|image: .*/fencedlease-manager:.*|image: $previous_image|" > "$out/previous.yaml"
  echo "$commit" > "$out/previous.commit"
  rm -rf "$tree"
}

build_archives() {
  say "building images"
  mkdir -p "$out"
  local platform
  platform=linux/$(go env GOARCH)
  hack/make/image-archive.sh "$image" "$out/manager.tar" "$platform" >&2
  # The same binary under another tag: what a rollout needs.
  hack/make/image-archive.sh "$E2E_NEXT_IMAGE" "$out/next.tar" "$platform" >&2
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w" -o "$out/worker" ./test/e2e/worker
  go run -C hack/image . -binary "$platform=$PWD/$out/worker" -program /worker -tag "$E2E_WORKER_IMAGE" -output "$PWD/$out/worker.tar" >&2
  build_previous
}

is_up() {
  case $E2E_PROVIDER in
    kind) kind get clusters 2>/dev/null | grep -qx "$KIND_CLUSTER" ;;
    node) "$node" exec true 2>/dev/null ;;
  esac
}

# start [up's flags...]
start() {
  case $E2E_PROVIDER in
    kind)
      is_up || kind create cluster --name "$KIND_CLUSTER" --wait 3m ${KIND_IMAGE:+--image "$KIND_IMAGE"} >&2
      for archive in "${archives[@]}"; do kind load image-archive --name "$KIND_CLUSTER" "$archive" >&2; done ;;
    node) "$node" up -install -logs "$out/logs" "$@" "${archives[@]}" >/dev/null ;;
    *) say "E2E_PROVIDER=$E2E_PROVIDER: want kind or node"; exit 2 ;;
  esac
}

cleanup() {
  case $E2E_PROVIDER in
    kind) kind delete cluster --name "$KIND_CLUSTER" >&2 ;;
    node) "$node" down ;;
  esac
}

run_specs() {
  go test -c -tags=e2e -o "$out/e2e.test" ./test/e2e
  local in_network=() as=()
  case $E2E_PROVIDER in
    kind)
      KUBECONFIG=$PWD/$out/kubeconfig
      export KUBECONFIG
      kind get kubeconfig --name "$KIND_CLUSTER" > "$KUBECONFIG" ;;
    node)
      E2E_NODE=$PWD/$node
      export E2E_NODE
      # The cluster's addresses are in its own network.
      in_network=("$node" exec) ;;
  esac
  KUBECTL=$(find_kubectl)
  export KUBECTL
  if [[ -e $out/previous.yaml ]]; then export E2E_PREVIOUS_MANIFESTS=$out/previous.yaml E2E_PREVIOUS_IMAGE=$previous_image; fi
  # The definitions of its kinds, of which nothing is compiled. They are fetched here, as the node has no way to the network.
  local certmanager=github.com/cert-manager/cert-manager
  go -C hack/crds mod download "$certmanager"
  E2E_CERT_MANAGER=$(go -C hack/crds list -m -f '{{.Dir}}' "$certmanager")/deploy/crds
  export E2E_CERT_MANAGER
  local verbose=(-test.v)
  if [[ ${E2E_JSON:-} == yes ]]; then
    as=(go tool test2json -t -p github.com/fencedlease/fencedlease/test/e2e)
    verbose=(-test.v=test2json)
  fi
  local test=$PWD/$out/e2e.test
  # shellcheck disable=SC2086 # several arguments
  "${as[@]}" "${in_network[@]}" env -C test/e2e "$test" "${verbose[@]}" -test.timeout=45m -ginkgo.v -ginkgo.timeout=40m ${GINKGO_ARGS:-}
}

case ${1:-} in
  setup)
    say "the provider is $E2E_PROVIDER"
    build_archives
    start ;;
  test)
    say "the provider is $E2E_PROVIDER"
    build_archives
    if is_up; then
      start
    else
      trap cleanup EXIT
      trap 'exit 130' INT TERM HUP
      # Also if this script is killed.
      if [[ $E2E_PROVIDER == node ]]; then start -while $$; else start; fi
    fi
    run_specs ;;
  cleanup) cleanup ;;
  *) say "usage: e2e.sh setup|test|cleanup"; exit 2 ;;
esac
