#!/usr/bin/env bash
# Prints the built kustomization of a folder, with the manager's image set to IMG, without a change to the work tree.
# Usage: KUBECTL=<kubectl> IMG=<image:tag> kustomize.sh config/default
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

name=${IMG%:*} tag=${IMG##*:}
if [[ $name == "$IMG" || $tag == */* ]]; then echo "kustomize: IMG=$IMG has no tag: give <image>:<tag>" >&2; exit 1; fi

# Kustomize reads images from a kustomization only, so one that includes the folder is made beside it. It must lie in the
# same tree as paths in kustomizations are relative.
overlay=$(mktemp -d ./config/.build.XXXXXX)
trap 'rm -rf "$overlay"' EXIT
cat > "$overlay/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../${1#config/}
images:
- name: ghcr.io/fencedlease/fencedlease-manager
  newName: $name
  newTag: $tag
YAML
"${KUBECTL:-kubectl}" kustomize "$overlay"
